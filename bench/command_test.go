package bench

import "testing"

func TestGarbageIsNoReplyToAnyCommand(t *testing.T) {
	w := newWorker(&shared{tallies: make([]tally, 1)}, 0)
	for m := range metricConnect {
		if w.settle(&slot{metric: m, step: mayFindNothing}, &reply{kind: replyGarbage, line: []byte("HELLO")}, 0) {
			t.Errorf("it is taken for a reply to %s", metricNames[m])
		}
	}
}
