package load

import "testing"

func TestGarbageIsNoReplyToAnyCommand(t *testing.T) {
	w := newWorker(&shared{counters: make([]counters, 1)}, 0)
	for m := range metricConnect {
		if w.check(&slot{metric: m, stage: mayFindNothing}, &reply{kind: replyGarbage, line: []byte("HELLO")}, 0) {
			t.Errorf("it is taken for a reply to %s", metricNames[m])
		}
	}
}
