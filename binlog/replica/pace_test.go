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
			w:      &out,
			since:  func() time.Duration { return now },
			growth: func() int64 { return int64(now.Seconds() * float64(x.rate)) },
			pause:  func() error { now += pacePause; return nil },
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

// slow is a receiver that takes nothing for a while when it has got some bytes.
type slow struct {
	got, at int
	stall   func()
}

func (s *slow) Write(b []byte) (int, error) {
	if s.got < s.at && s.got+len(b) >= s.at {
		s.stall()
	}
	s.got += len(b)
	return len(b), nil
}

func TestAStreamGoesOnEvenlyAfterAReceiverHasStopped(t *testing.T) {
	const stalled = 10 * time.Second
	var now time.Duration
	p := &paced{
		w:      &slow{at: paceRate / 2, stall: func() { now += stalled }},
		since:  func() time.Duration { return now },
		growth: func() int64 { return 0 },
		pause:  func() error { now += pacePause; return nil },
	}
	if n, err := p.Write(make([]byte, paceRate)); n != paceRate || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if took := now - stalled; took < 9*time.Second/10 || took > 11*time.Second/10 {
		t.Errorf("it took %v beside the pause of the receiver, want about 1s", took)
	}
}

// What is written meanwhile counts however the receiver takes it.
func TestAStreamOutrunsTheLogThoughItsReceiverStops(t *testing.T) {
	const stalled, rate = 10 * time.Second, 2 * paceRate
	var now time.Duration
	p := &paced{
		w:      &slow{at: paceRate / 2, stall: func() { now += stalled }},
		since:  func() time.Duration { return now },
		growth: func() int64 { return int64(now.Seconds() * rate) },
		pause:  func() error { now += pacePause; return nil },
	}
	total := int64(2 * stalled.Seconds() * rate)
	b := make([]byte, paceRate)
	for sent := int64(0); sent < total; sent += int64(len(b)) {
		if _, err := p.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if now > stalled+2*time.Second/10 {
		t.Errorf("it took %v until as much was sent as the log had grown by, twice", now)
	}
}

func TestAStreamEndsWithTheNode(t *testing.T) {
	p := &paced{
		w: new(bytes.Buffer), since: func() time.Duration { return 0 }, growth: func() int64 { return 0 },
		pause: func() error { return ErrClosed },
	}
	if n, err := p.Write(make([]byte, paceRate)); !errors.Is(err, ErrClosed) || n >= paceRate {
		t.Errorf("%d, %v", n, err)
	}
}
