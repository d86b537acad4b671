package replica

import (
	"io"
	"time"
)

const (
	// paceRate is how many bytes of a snapshot are sent a second while nothing else happens:
	// disk, network and processors are for clients first.
	paceRate = 64 << 20
	// paceBurst is what may be sent at once.
	paceBurst = 1 << 20
	// paceStep is how much is sent between two looks at the time.
	paceStep = 128 << 10
	// pacePause is how long a stream that is ahead waits.
	pacePause = 2 * time.Millisecond
)

// paced is a stream of a snapshot that goes on evenly: paceRate bytes a second, and two more
// for each byte that the log has grown by meanwhile, so that a receiver that takes them
// comes nearer to the end of the log however much is written to it.
type paced struct {
	w     io.Writer
	since func() time.Duration // since the stream has begun
	grown func() int64         // bytes that the log has grown by since then
	pause func() error         // waits for pacePause; its error ends the stream
	sent  int64
}

func (n *Node) pace(index uint64, w io.Writer) *paced {
	began, size := time.Now(), n.log.SizeBehind(index)
	return &paced{
		w:     w,
		since: func() time.Duration { return time.Since(began) },
		grown: func() int64 { return n.log.SizeBehind(index) - size },
		pause: func() error {
			select {
			case <-n.stopped:
				return ErrClosed
			case <-time.After(pacePause):
				return nil
			}
		},
	}
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		for p.sent > p.allowed() {
			if err := p.pause(); err != nil {
				return n, err
			}
		}
		k, err := p.w.Write(b[:min(len(b), paceStep)])
		n += k
		p.sent += int64(k)
		if err != nil {
			return n, err
		}
		b = b[k:]
	}
	return n, nil
}

// allowed is how many bytes may have been sent by now.
func (p *paced) allowed() int64 {
	return paceBurst + int64(p.since().Seconds()*paceRate) + 2*max(0, p.grown())
}
