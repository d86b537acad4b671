package cluster

import (
	"context"
	"time"
)

const (
	// guardPause is between an answer of the server and the next question.
	guardPause = 250 * time.Millisecond
	// guardTicks is how many of them a server may take to answer: two seconds.
	guardTicks = 8
)

// guard makes the node resign when an event loop or a shard of the engine does
// not answer. The raft goroutine knows nothing of these, and would go on to lead.
//
// Time is counted by ticks that this goroutine has seen, so that a process that was
// stopped for a while is not taken for one that hangs.
func (s *service) guard() {
	ticker := time.NewTicker(guardPause)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticker.C:
		}
		if err := s.responds(ticker.C); err != nil {
			if s.ended.Err() == nil {
				s.queue.resign(err.Error())
			}
			return
		}
	}
}

// responds asks the server, and tells who has not answered within guardTicks.
func (s *service) responds(ticks <-chan time.Time) error {
	ctx, cancel := context.WithCancel(s.ended)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- s.server.Responds(ctx) }()
	for range guardTicks {
		select {
		case err := <-answer:
			return err
		case <-ticks:
		}
	}
	cancel()
	return <-answer
}
