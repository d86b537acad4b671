package main

import (
	"os"
	"testing"
)

func TestProgressIsShownOnTerminalsOnly(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a device, and no terminal
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if l := newProgressLine(null); l.out != nil {
		t.Errorf("it is shown on %s", os.DevNull)
	}
}
