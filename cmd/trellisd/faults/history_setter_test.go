package faults

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Setter is a client that changes a tube's setting again and again.
type Setter struct {
	tried, acknowledged uint32
	unanswered          []uint32 // a member may still carry out what it had no reply to
}

// SetTube is the tube of a Setter.
const SetTube = "set"

// Run changes the setting until ctx ends. Its error tells of replies that no server may give.
func (s *Setter) Run(ctx context.Context, k *Client) error {
	defer k.Close()
	for {
		s.tried++
		lost := k.Lost()
		err := k.SetDeadLetters(ctx, s.tried)
		if k.Lost() > lost {
			s.unanswered = append(s.unanswered, s.tried)
		}
		if err == nil {
			s.acknowledged = s.tried
		} else if ctx.Err() == nil && !errors.Is(err, ErrNoRoom) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// MayBe reports whether so many attempts are the last setting that was acknowledged, or one that may have come later.
func (s *Setter) MayBe(attempts uint32) bool {
	return attempts <= s.tried && (attempts >= s.acknowledged || slices.Contains(s.unanswered, attempts))
}
