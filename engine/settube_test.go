package engine

import (
	"testing"

	"trellis/binlog/journal"
	"trellis/codec"
)

func TestPoliciesHaveTheKeysOfSetTube(t *testing.T) {
	if n := len(journal.PolicyKeys); n != int(codec.NumTubeKeys) {
		t.Fatalf("%d keys", n)
	}
	for k := range codec.NumTubeKeys {
		of := &journal.PolicyKeys[k]
		if got := string(of.AppendValue(nil, &journal.DefaultPolicy)); of.Name != k.String() || got != k.Default() {
			t.Errorf("%s is %s with the default %q, want %q", k, of.Name, got, k.Default())
		}
	}
}
