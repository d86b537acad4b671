package relay

import (
	"testing"
	"time"
)

func TestContactIsWhenTheLastPingWasSentThatWasAnswered(t *testing.T) {
	t.Parallel()
	var k contact
	k.begin(0)
	for i := range uint32(maxPinged) {
		if n, ok := k.ping(time.Duration(i + 1)); n != i+1 || !ok {
			t.Fatalf("ping %d has the number %d, %v", i+1, n, ok)
		}
	}
	if _, ok := k.ping(99); ok {
		t.Error("there are more pings than may be")
	}
	for _, x := range []struct {
		number uint32
		last   time.Duration
		err    error
	}{{0, 0, nil}, {3, 3, nil}, {2, 3, errPong}, {3, 3, nil}, {maxPinged + 1, 3, errPong}, {maxPinged, maxPinged, nil}} {
		if err := k.pong(x.number); err != x.err || k.last != x.last {
			t.Errorf("behind %d, contact was at %d, %v", x.number, k.last, err)
		}
	}
	if n, ok := k.ping(100); n != maxPinged+1 || !ok || k.pong(n) != nil || k.last != 100 {
		t.Errorf("ping %d: contact was at %d", n, k.last)
	}
}
