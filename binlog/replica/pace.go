package replica

import (
	"context"
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
//
// What a receiver has not taken of the even rate does not come later, but for paceBurst. What
// the log has grown by does: otherwise a receiver that often stops for a moment might never
// come to its end.
type paced struct {
	w      io.Writer
	since  func() time.Duration // since the stream has begun
	growth func() int64         // bytes that the log has grown by since then
	pause  func() error         // waits for pacePause; its error ends the stream

	credit     int64 // bytes that may be sent as of the last look; below zero, one waits
	lastLook   time.Duration
	lastGrowth int64 // the most that the log had grown by then
}

func (n *Node) pace(index uint64, w io.Writer) *paced {
	began, size := time.Now(), n.log.SizeBehind(index)
	return &paced{
		w:      w,
		since:  func() time.Duration { return time.Since(began) },
		growth: func() int64 { return n.log.SizeBehind(index) - size },
		pause:  func() error { return n.pause(context.Background(), pacePause) },
	}
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		for p.look(); p.credit < 0; p.look() {
			if err := p.pause(); err != nil {
				return n, err
			}
		}
		k, err := p.w.Write(b[:min(len(b), paceStep)])
		n += k
		p.credit -= int64(k)
		if err != nil {
			return n, err
		}
		b = b[k:]
	}
	return n, nil
}

// look adds what has come since the last look to the credit.
func (p *paced) look() {
	at, grown := p.since(), max(p.lastGrowth, p.growth())
	even := p.credit + int64((at-p.lastLook).Seconds()*paceRate)
	p.credit = max(p.credit, min(even, paceBurst)) + 2*(grown-p.lastGrowth)
	p.lastLook, p.lastGrowth = at, grown
}
