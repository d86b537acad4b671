package binlog

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func openWaker(t testing.TB) *waker {
	b := new(waker)
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

func TestAWaitReturnsOnceForAllWakesBeforeIt(t *testing.T) {
	t.Parallel()
	b := openWaker(t)
	b.wake()
	b.wake()
	b.wait()
	heard := make(chan bool)
	go func() {
		b.wait()
		close(heard)
	}()
	awaitAsleep(b)
	select {
	case <-heard:
		t.Error("a wait returned without a wake")
	default:
	}
	b.wake()
	<-heard
}

// awaitAsleep returns when somebody waits.
func awaitAsleep(b *waker) {
	for b.state.Load() != asleep {
		time.Sleep(50 * time.Microsecond)
	}
}

func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	b := openWaker(t)
	const wakers, each = 4, 5000
	var done atomic.Int64
	for range wakers {
		go func() {
			for i := range each {
				done.Add(1)
				b.wake()
				if i%100 == 0 {
					awaitAsleep(b) // what was done has been seen by then, by this wait or by others
				}
			}
		}()
	}
	for seen := int64(0); seen < wakers*each; {
		b.wait() // for ever if the last wake is lost
		seen = done.Load()
	}
}

func TestAWakerThatNobodyWaitsForMayBeUsed(t *testing.T) {
	t.Parallel()
	var never waker
	never.wake()
	never.close()

	b := openWaker(t)
	var waiting sync.WaitGroup
	waiting.Go(b.wait)
	awaitAsleep(b)
	b.wake()
	waiting.Wait()
	b.close()
	b.wake()
	b.close()
}

func TestCloseFreesTheCommittersPipe(t *testing.T) {
	o := newOwner()
	if err := o.open(t.TempDir(), Options{}); err != nil {
		t.Fatal(err)
	}
	if !o.log.waker.opened {
		t.Fatal("there is no pipe")
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	if o.log.waker.opened {
		t.Error("the pipe is still open")
	}
}
