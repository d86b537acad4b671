package replica

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

func TestASnapshotIsSentEvenlyAndOutrunsTheLog(t *testing.T) {
	for _, x := range []struct {
		what string
		rate int64 // bytes a second that the log grows by
		took time.Duration
	}{
		{"an idle leader", 0, time.Second},
		{"a busy one", paceRate / 2, time.Second / 2},
		{"one that writes faster than the stream would be", 2 * paceRate, time.Second / 5},
	} {
		var now time.Duration
		var out bytes.Buffer
		p := &paced{
			w:     &out,
			since: func() time.Duration { return now },
			grown: func() int64 { return int64(now.Seconds() * float64(x.rate)) },
			pause: func() error { now += pacePause; return nil },
		}
		n, err := p.Write(make([]byte, paceRate))
		if n != paceRate || err != nil || out.Len() != paceRate {
			t.Fatalf("%s: %d bytes of %d, %v", x.what, n, out.Len(), err)
		}
		if now < x.took-x.took/10 || now > x.took+x.took/10 {
			t.Errorf("%s: %v, want about %v", x.what, now, x.took)
		}
	}
}

func TestAStreamEndsWithTheNode(t *testing.T) {
	p := &paced{
		w: new(bytes.Buffer), since: func() time.Duration { return 0 }, grown: func() int64 { return 0 },
		pause: func() error { return ErrClosed },
	}
	if n, err := p.Write(make([]byte, paceRate)); !errors.Is(err, ErrClosed) || n >= paceRate {
		t.Errorf("%d, %v", n, err)
	}
}
