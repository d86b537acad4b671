package shard

import "testing"

func TestAProbeWaitsForAShardThatIsLocked(t *testing.T) {
	e := New(Config{})
	e.Probe()
	last := e.shards[len(e.shards)-1]
	last.mu.Lock()
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		e.Probe()
	}()
	select {
	case <-probed:
		t.Error("a probe has ended although a shard is locked")
	default:
	}
	last.mu.Unlock()
	<-probed
}
