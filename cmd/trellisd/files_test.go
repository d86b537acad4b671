package main

import (
	"testing"
)

func TestWhatCameOfAReloadIsOneLineOfYAML(t *testing.T) {
	t.Parallel()
	if got, want := scalar("a \"b\"\n\x1bc\\ ä"), `"a 'b'  c' ä"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
