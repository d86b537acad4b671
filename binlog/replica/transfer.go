package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"trellis/binlog/journal"
	"trellis/binlog/replica/member"
)

// errTransfer tells that a transfer has ended without another leader.
var errTransfer = errors.New("the other member has not taken over; this node goes on")

// transfer is a handing over of leadership. The raft goroutine's.
type transfer struct {
	leadership *Leadership
	done       chan error // holds the end
}

// flushTime is how long a transfer waits for clients that do not take their replies.
const flushTime = 200 * time.Millisecond

// Transfer hands leadership over to another member that votes, or to the one that has
// the most if `to` is 0. The queue stops executing, all that it has executed is
// committed, its replies are given to the system, and only then the other member is told.
// If that has not taken over within an election's time, it is told once more, and then this
// node goes on as if nothing had happened. Errors wrap ErrNotLeader or tell why nothing was
// handed over.
func (n *Node) Transfer(ctx context.Context, to member.ID) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	return n.handOver(ctx, to)
}

// errBusy tells of two requests at a time.
var errBusy = errors.New("the members or the leader are being changed already")

// handOver transfers the leadership, as Transfer says. With changing held.
func (n *Node) handOver(ctx context.Context, to member.ID) error {
	err := n.handOverOnce(ctx, to)
	if errors.Is(err, errTransfer) {
		// The other may not have applied yet that it votes.
		err = n.handOverOnce(ctx, to)
	}
	return err
}

func (n *Node) handOverOnce(ctx context.Context, to member.ID) error {
	l, err := n.leading()
	if err != nil {
		return err
	}
	if to, err = n.successor(ctx, to); err != nil {
		return err
	}
	n.opts.Queue.Hold(true)
	for err = errUncommitted; errors.Is(err, errUncommitted); {
		err = n.handOverHeld(ctx, l, to)
	}
	if err != nil {
		l.held.Store(false)
		l.passed.Store(false)
		n.opts.Queue.Hold(false)
		return fmt.Errorf("transfer to %v: %w", to, err)
	}
	return nil
}

// settleAndFlush returns when all that the held queue has executed is committed, and its
// replies are given to the system.
func (n *Node) settleAndFlush(ctx context.Context, l *Leadership) error {
	if err := l.settle(ctx); err != nil {
		return err
	}
	flush, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	n.opts.Queue.Flush(flush)
	return nil
}

func (n *Node) handOverHeld(ctx context.Context, l *Leadership, to member.ID) error {
	if err := n.settleAndFlush(ctx, l); err != nil {
		return err
	}
	t := &transfer{l, make(chan error, 1)}
	err := n.ask(ctx, func(c *consensus) error {
		if ctx.Err() != nil {
			return ctx.Err() // nobody waits any more
		}
		return c.beginTransfer(t, uint64(to))
	})
	if err != nil {
		return err
	}
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopped:
		return ErrClosed
	}
}

// errVoters tells that another member votes.
var errVoters = errors.New("another member votes: the leadership can be handed over to it")

// StepAside has a node that is the only one to vote end its leadership and lead again, with a queue
// that is made anew of what is on its disk. All that the old one has executed is committed and replied to
// before; in between nothing executes. It returns when the node serves again. Errors wrap ErrNotLeader
// or tell why nothing was done; or ctx has ended, and the node serves again later.
func (n *Node) StepAside(ctx context.Context) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	l, err := n.leading()
	if err != nil {
		return err
	}
	n.opts.Queue.Hold(true)
	for err = errUncommitted; errors.Is(err, errUncommitted); {
		err = n.stepAsideHeld(ctx, l)
	}
	if err != nil {
		n.opts.Queue.Hold(false)
		return fmt.Errorf("stepping aside: %w", err)
	}
	for {
		if now, err := n.leading(); err == nil && now != l {
			return nil
		}
		if err := n.pause(ctx, pollTime); err != nil {
			return fmt.Errorf("it has stepped aside, and does not serve again yet: %w", err)
		}
	}
}

func (n *Node) stepAsideHeld(ctx context.Context, l *Leadership) error {
	if err := n.settleAndFlush(ctx, l); err != nil {
		return err
	}
	// If ctx ended this wait, the queue would go on, and the leadership end nevertheless.
	return n.ask(context.WithoutCancel(ctx), func(c *consensus) error { return c.stepAside(l) })
}

// errUncommitted tells that the node itself has appended something to a leadership that had settled:
// it allows a later version of entries whether the queue is held or not.
var errUncommitted = errors.New("not all is committed")

func (c *consensus) stepAside(l *Leadership) error {
	if c.leadership != l || l.over.Load() {
		return ErrNotLeader
	}
	if !c.alone() {
		return errVoters
	}
	if !l.allCommitted() {
		return errUncommitted
	}
	l.held.Store(true)
	was := c.backoff
	c.stepDown("it makes its queue anew, and leads again")
	c.backoff = was // nobody else could lead
	return nil
}

// leading returns the leadership that the queue serves in.
func (n *Node) leading() (*Leadership, error) {
	if l := n.leadership.Load(); l != nil && l.serving.Load() && !l.over.Load() {
		return l, nil
	}
	return nil, ErrNotLeader
}

// ask runs f on the raft goroutine, and returns its result. If ctx ends first, f may still run: what it sets may be
// read only if there is no error.
func (n *Node) ask(ctx context.Context, f func(c *consensus) error) error {
	done := make(chan error, 1)
	n.inbox.call(func() { done <- f(n.consensus) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopped:
		return ErrClosed
	}
}

// successor returns who may take over: the member that is wanted, or the one that has
// the most. It has an election's time to be heard.
func (n *Node) successor(ctx context.Context, to member.ID) (member.ID, error) {
	var asked uint64
	var best member.ID
	err := n.poll(ctx, func(c *consensus) (bool, error) {
		if asked == 0 {
			asked = c.tick
		}
		if best = c.best(to); best == 0 && c.tick > asked+electionTicks {
			return false, c.noSuccessor(to)
		}
		return best != 0, nil
	})
	if err != nil {
		return 0, err
	}
	return best, nil
}

// best returns the member that votes, answers, has told that it has loaded its jobs and has the most, of
// all or of one; 0 if there is none.
func (c *consensus) best(of member.ID) (best member.ID) {
	st := c.rn.Status()
	for _, v := range slices.Sorted(maps.Keys(st.Config.Voters.IDs())) { // of equals always the same
		id := member.ID(v)
		told, ok := c.reports[v]
		switch {
		case id == c.node.opts.Self || of != 0 && id != of || !c.alive(v) || !ok || told.toLoad > 0:
		case best == 0 || st.Progress[v].Match > st.Progress[uint64(best)].Match:
			best = id
		}
	}
	return best
}

// errLoading tells that members answer to which nothing can be handed over yet.
var errLoading = errors.New("has not loaded all jobs yet, and cannot lead before")

// noSuccessor tells why best has found nobody.
func (c *consensus) noSuccessor(to member.ID) error {
	for _, m := range c.node.applier.applied().Members {
		left := c.reports[uint64(m.ID)].toLoad
		if m.ID != c.node.opts.Self && (to == 0 || m.ID == to) && c.alive(uint64(m.ID)) && left > 0 {
			return fmt.Errorf("%s %w: %d %% are left", m.Name, errLoading, left)
		}
	}
	return errors.New("there is no such member that votes and answers")
}

func (c *consensus) beginTransfer(t *transfer, to uint64) error {
	if c.leadership != t.leadership {
		return ErrNotLeader
	}
	if c.best(member.ID(to)) == 0 { // it may have been started anew since it was chosen
		return c.noSuccessor(member.ID(to))
	}
	if !t.leadership.allCommitted() {
		return errUncommitted
	}
	t.leadership.passed.Store(true)
	t.leadership.held.Store(true)
	c.transfer = t
	c.rn.TransferLeader(to)
	return nil
}

// checkTransfer ends a transfer that has succeeded or that raft has given up.
func (c *consensus) checkTransfer(st raft.BasicStatus) {
	t := c.transfer
	switch {
	case t == nil:
	case c.leadership != t.leadership:
		c.transfer = nil
		t.done <- nil
	case st.LeadTransferee == 0:
		c.transfer = nil
		t.done <- errTransfer
	}
}

// A settling is a wait for all up to a position.
type settling struct {
	pos  journal.Pos
	done chan struct{} // closed when that is committed, or the leadership is over
}

// settle waits until all is committed that was appended before. Read rounds that others ask for meanwhile, of which
// there may be one under way at any time, are not waited for.
func (l *Leadership) settle(ctx context.Context) error {
	l.mu.Lock()
	if l.over.Load() {
		l.mu.Unlock()
		return ErrNotLeader
	}
	w := settling{l.last, make(chan struct{})}
	l.settlings = append(l.settlings, w)
	l.settled()
	l.mu.Unlock()
	l.wake()
	select {
	case <-w.done:
	case <-ctx.Done():
		l.mu.Lock()
		l.settlings = slices.DeleteFunc(l.settlings, func(o settling) bool { return o == w })
		l.mu.Unlock()
		return fmt.Errorf("what was executed is not committed: %w", ctx.Err())
	}
	if l.over.Load() {
		return ErrNotLeader
	}
	return nil
}

// settled wakes those in settle who need not wait any more. With mu held.
func (l *Leadership) settled() {
	l.settlings = slices.DeleteFunc(l.settlings, func(w settling) bool {
		done := l.over.Load() || w.pos <= l.Committed()
		if done {
			close(w.done)
		}
		return done
	})
}
