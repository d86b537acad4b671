package shard

import (
	"testing"

	"trellis/engine/script"
)

// The scripts that also drive the whole server and beanstalkd, with all
// connections on one loop and spread over several.
func TestScripts(t *testing.T) {
	t.Run("one loop", func(t *testing.T) { script.RunCorpus(t, simTarget{loops: 1}, "trellis", "access", "exact") })
	t.Run("three loops", func(t *testing.T) { script.RunCorpus(t, simTarget{loops: 3}, "trellis", "access", "exact") })
}
