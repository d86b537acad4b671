package console

import (
	"slices"
	"sync"
	"time"
)

// maxActions is how many actions are remembered.
const maxActions = 200

type action struct {
	Number uint64    `json:"number"`
	At     time.Time `json:"at"`
	Who    string    `json:"who"`    // the user, as authentication says
	From   string    `json:"from"`   // the address
	What   string    `json:"what"`   // such as "kick"
	On     string    `json:"on"`     // such as "tube mail"
	Detail string    `json:"detail"` // such as "at most 100"
	Result string    `json:"result"` // what came of it, or why nothing did
	Failed bool      `json:"failed"`
}

// actionLog are the last actions. Any goroutine may use it.
type actionLog struct {
	mu   sync.Mutex
	last []action // the oldest first; guarded by mu
	n    uint64   // how many there were in all; guarded by mu
}

// add remembers an action, and returns it with its number.
func (l *actionLog) add(a action) action {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	a.Number = l.n
	if len(l.last) == maxActions {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, a)
	return a
}

// get returns an action by its number, nil if it is forgotten.
func (l *actionLog) get(number uint64) *action {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.last {
		if l.last[i].Number == number {
			a := l.last[i]
			return &a
		}
	}
	return nil
}

// all returns the actions that are remembered, the newest first.
func (l *actionLog) all() []action {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append([]action{}, l.last...)
	slices.Reverse(all)
	return all
}
