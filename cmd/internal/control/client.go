package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
)

// Client asks members of a cluster.
type Client struct {
	Wire wire.ClientConfig

	// Timeout is how long a member may take to tell its status. A leader may take twice
	// as long to appear.
	Timeout time.Duration
}

// Errors by which the tool tells its user who is at fault.
var (
	// ErrUnreachable tells that nobody who could answer was reached.
	ErrUnreachable = errors.New("no member can be reached")

	// ErrNoLeader tells that members were reached, and none of them leads.
	ErrNoLeader = errors.New("no member leads the cluster: most members have to run and to reach each other")

	// ErrNotReady tells that a member could not lead yet.
	ErrNotReady = errors.New("not all members can lead yet")
)

// Answer is what a member has said, or why it has said nothing.
type Answer struct {
	Node   member.Node // without a name, if it was asked by its address and did not answer
	Status *Status     // nil if it did not answer
	Err    error
}

// View is what all members have said.
type View struct {
	Cluster member.ClusterID
	Members []replica.MemberStatus // as the leader sees them, or, without one, as the newest answer has them
	Answers []Answer               // of each member, in the same order
	Leader  *Status                // nil if no member that was reached leads
}

// Member is what is known of a member with that name.
func (v *View) Member(name string) (m replica.MemberStatus, ok bool) {
	i := slices.IndexFunc(v.Members, func(m replica.MemberStatus) bool { return m.Name == name })
	if i < 0 {
		return m, false
	}
	return v.Members[i], true
}

// Last is the index of the last entry that any member has. If most members have answered,
// nothing that was acknowledged before they were asked lies behind it.
func (v *View) Last() (index uint64) {
	for _, h := range v.Answers {
		if h.Status != nil {
			index = max(index, h.Status.Last)
		}
	}
	return index
}

// Look asks the nodes at some addresses, of one cluster, and then all members that they
// know of. The error wraps ErrUnreachable if none of them answers, or is a
// *wire.RemoteError if none that answers belongs to a cluster. If the context ends
// meanwhile, its cause is the error: nobody could tell who would have answered.
func (c *Client) Look(ctx context.Context, addrs []string, digest bool) (*View, error) {
	first := c.ask(ctx, addrs, digest)
	best, err := newest(first)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	v := &View{Cluster: best.Cluster, Members: best.Members}
	missing := func() (more []string) {
		for _, m := range v.Members {
			if !slices.ContainsFunc(first, func(h answerFrom) bool { return h.is(m.Node()) }) {
				more = append(more, m.Addr)
			}
		}
		return more
	}
	first = append(first, c.ask(ctx, missing(), digest)...)
	for _, h := range first {
		s := h.Status
		if s != nil && s.Leads && s.Cluster == v.Cluster && (v.Leader == nil || v.Leader.Term < s.Term) {
			v.Leader, v.Members = s, s.Members
		}
	}
	first = append(first, c.ask(ctx, missing(), digest)...) // whom only the leader knows
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for _, m := range v.Members {
		i := slices.IndexFunc(first, func(h answerFrom) bool { return h.is(m.Node()) })
		h := first[i].Answer
		h.Node = m.Node()
		if h.Status != nil && h.Status.Cluster != v.Cluster {
			h.Status, h.Err = nil, fmt.Errorf("it belongs to cluster %s", h.Status.Cluster)
		}
		v.Answers = append(v.Answers, h)
	}
	return v, nil
}

type answerFrom struct {
	addr string
	Answer
}

// is reports whether a node was asked.
func (h *answerFrom) is(n member.Node) bool {
	return h.addr == n.Addr || h.Status != nil && h.Status.Node == n
}

// ask asks the nodes at some addresses, all at once.
func (c *Client) ask(ctx context.Context, addrs []string, digest bool) []answerFrom {
	hs := make([]answerFrom, len(addrs))
	var all sync.WaitGroup
	for i, addr := range addrs {
		hs[i].addr = addr
		all.Go(func() {
			s, err := c.Status(ctx, addr, digest)
			if err != nil {
				hs[i].Err = err
				return
			}
			hs[i].Status, hs[i].Node = &s, s.Node
		})
	}
	all.Wait()
	return hs
}

// newest is the answer with the latest term, and among those the one that has applied most.
// The error tells why nobody has answered.
func newest(hs []answerFrom) (best *Status, err error) {
	var remote *wire.RemoteError
	var why []string
	for _, h := range hs {
		switch s := h.Status; {
		case s == nil:
			why = append(why, fmt.Sprintf("%s: %v", h.addr, h.Err))
			errors.As(h.Err, &remote)
		case best != nil && s.Cluster != best.Cluster:
			return nil, fmt.Errorf("%s and %s belong to different clusters: %s and %s",
				best.Node, s.Node, best.Cluster, s.Cluster)
		case best == nil || best.Term < s.Term || best.Term == s.Term && best.Applied < s.Applied:
			best = s
		}
	}
	switch {
	case best != nil:
		return best, nil
	case remote != nil:
		return nil, &wire.RemoteError{Text: strings.Join(why, "; ")}
	}
	return nil, fmt.Errorf("%w: %s", ErrUnreachable, strings.Join(why, "; "))
}

// Status asks a node for its status. With a digest it takes as long as a walk over all
// jobs.
func (c *Client) Status(ctx context.Context, addr string, digest bool) (s Status, err error) {
	if !digest {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, errors.New("it does not answer"))
		defer cancel()
	}
	return c.call(ctx, addr, Request{Op: OpStatus, Digest: digest}, nil)
}

// Backup writes a snapshot of a member to w, with all entries up to index at least, as
// snapshot.Extract reads it. Without an error it is whole.
func (c *Client) Backup(ctx context.Context, addr string, index uint64, w io.Writer) error {
	_, err := c.call(ctx, addr, Request{Op: OpBackup, Index: index}, w)
	return err
}

func (c *Client) call(ctx context.Context, addr string, r Request, w io.Writer) (s Status, err error) {
	req, err := json.Marshal(r)
	if err != nil {
		return s, err
	}
	resp, err := wire.Fetch(ctx, c.Wire, addr, req, w)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(resp, &s); err != nil {
		return s, fmt.Errorf("%s: not the answer of a member: %w", addr, err)
	}
	return s, nil
}

// pause is what comes between two looks for a leader. Its error is the cause of the context's end.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// Lead sends a request to the leader, and to the next one if that has stopped being leader meanwhile. The request may
// have been carried out although its reply was lost: done decides that from the present view and the leader that was
// asked; it may be nil. Errors wrap ErrUnreachable or ErrNoLeader, or are what the leader says, a *wire.RemoteError.
func (c *Client) Lead(
	ctx context.Context, addrs []string, r Request, done func(v *View, asked *Status) bool,
) (*View, error) {
	var asked *Status // the last leader that was asked
	var said error    // by it
	for end := time.Now().Add(2 * c.Timeout); ; {
		v, err := c.Look(ctx, addrs, false)
		if err != nil {
			return nil, err
		}
		if said != nil && done != nil && done(v, asked) {
			return v, nil
		}
		if l := v.Leader; l != nil && l.Serves {
			asked = l
			if _, said = c.call(ctx, l.Node.Addr, r, nil); said == nil {
				return c.Look(ctx, addrs, false)
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if s, err := c.Status(ctx, l.Node.Addr, false); err == nil && s.Leads && s.Term == l.Term {
				return nil, said
			}
			end = time.Now().Add(2 * c.Timeout) // it does not lead any more, or has gone
		}
		if time.Now().After(end) {
			return nil, errors.Join(ErrNoLeader, said)
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// Leader waits until a member serves clients. Errors wrap ErrUnreachable, or ErrNoLeader.
func (c *Client) Leader(ctx context.Context, addrs []string) (*Status, error) {
	var leader *Status
	err := c.await(ctx, addrs, func(v *View) (int64, error) {
		if leader = v.Leader; leader == nil || !leader.Serves {
			return 0, ErrNoLeader
		}
		return 0, nil
	})
	return leader, err
}

// near is how many entries a member may lack whom Ready takes to have the log: while clients are served,
// some are always on their way.
const near = 64

// Ready waits until a member serves clients, no member that answers has jobs to load, and members of
// some names answer and have the leader's log as well. So each of those can lead. Errors wrap
// ErrUnreachable, ErrNoLeader or ErrNotReady.
func (c *Client) Ready(ctx context.Context, addrs, names []string) error {
	return c.await(ctx, addrs, func(v *View) (left int64, err error) {
		l := v.Leader
		if l == nil || !l.Serves {
			return 0, ErrNoLeader
		}
		for _, name := range names {
			if _, ok := v.Member(name); !ok {
				err = fmt.Errorf("%w: there is no member %s", ErrNotReady, name)
			}
		}
		for i, m := range v.Members {
			s, named := v.Answers[i].Status, slices.Contains(names, m.Name)
			switch {
			case s == nil && named:
				err = fmt.Errorf("%w: %s does not answer: %w", ErrNotReady, m.Name, v.Answers[i].Err)
			case s == nil || m.ID == l.Self:
			case s.ToLoad > 0:
				left += int64(s.ToLoad)
				err = fmt.Errorf("%w: %s has %d %% of its jobs to load", ErrNotReady, m.Name, s.ToLoad)
			case named && (!m.Alive || m.Match+near < l.Last):
				left += m.Behind
				err = fmt.Errorf("%w: %s lacks %d entries", ErrNotReady, m.Name, l.Last-min(l.Last, m.Match))
			}
		}
		return left, err
	})
}

// await looks at the cluster until so returns no error, or what it says is left has not become less for twice Timeout.
func (c *Client) await(ctx context.Context, addrs []string, so func(v *View) (left int64, err error)) error {
	least := int64(math.MaxInt64)
	for end := time.Now().Add(2 * c.Timeout); ; {
		v, err := c.Look(ctx, addrs, false)
		if err == nil {
			var left int64
			if left, err = so(v); err == nil {
				return nil
			}
			if left < least {
				least, end = left, time.Now().Add(2*c.Timeout)
			}
		}
		if time.Now().After(end) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// Await waits until a node answers who it is, or for Timeout: one that is about to be
// added may just have been started.
func (c *Client) Await(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	call := func(ctx context.Context, addr string, req []byte) ([]byte, error) {
		return wire.Call(ctx, c.Wire, addr, req)
	}
	for ctx.Err() == nil {
		if _, err := member.Probe(ctx, call, addr); err == nil {
			return
		}
		_ = pause(ctx)
	}
}
