package binlog

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func hungBell(t testing.TB) *bell {
	b := new(bell)
	if err := b.hang(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

func TestAWaitReturnsOnceForAllRingsBeforeIt(t *testing.T) {
	t.Parallel()
	b := hungBell(t)
	b.ring()
	b.ring()
	b.wait()
	heard := make(chan bool)
	go func() {
		b.wait()
		close(heard)
	}()
	awaitAsleep(b)
	select {
	case <-heard:
		t.Error("a wait returned without a ring")
	default:
	}
	b.ring()
	<-heard
}

// awaitAsleep returns when somebody waits for the bell.
func awaitAsleep(b *bell) {
	for b.state.Load() != asleep {
		time.Sleep(50 * time.Microsecond)
	}
}

func TestNoRingIsLost(t *testing.T) {
	t.Parallel()
	b := hungBell(t)
	const ringers, each = 4, 5000
	var done atomic.Int64
	for range ringers {
		go func() {
			for i := range each {
				done.Add(1)
				b.ring()
				if i%100 == 0 {
					awaitAsleep(b) // what was done has been seen by then, by this wait or by others
				}
			}
		}()
	}
	for seen := int64(0); seen < ringers*each; {
		b.wait() // for ever if the last ring is lost
		seen = done.Load()
	}
}

func TestABellThatNobodyWaitsForMayBeRung(t *testing.T) {
	t.Parallel()
	var never bell
	never.ring()
	never.close()

	b := hungBell(t)
	var waiting sync.WaitGroup
	waiting.Go(b.wait)
	awaitAsleep(b)
	b.ring()
	waiting.Wait()
	b.close()
	b.ring()
	b.close()
}

func TestCloseFreesTheCommittersPipe(t *testing.T) {
	o := newOwner()
	if err := o.open(t.TempDir(), Options{}); err != nil {
		t.Fatal(err)
	}
	if !o.log.bell.open {
		t.Fatal("there is no pipe")
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	if o.log.bell.open {
		t.Error("the pipe is still open")
	}
}
