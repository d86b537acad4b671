package relay

import (
	"errors"
	"slices"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// What clients of a gateway use and watch: the leader says so before each reply that tells of it, so that
// the next leader can be told. Clients of a loop share the names.

// tubeName is the name of a tube that clients use or watch.
type tubeName struct {
	name  string
	users int // how often it is used and watched; those of 0 are forgotten in time
}

// tubeNames are those of a gateway's loop.
type tubeNames struct {
	all    map[string]*tubeName
	unused int // how many have no users
}

// maxUnused is how many names may have no users, however few have some.
const maxUnused = 1 << 10

// get returns the name with one user more.
func (t *tubeNames) get(name []byte) *tubeName {
	n := t.all[string(name)]
	switch {
	case n == nil:
		if t.all == nil {
			t.all = make(map[string]*tubeName)
		}
		n = &tubeName{name: string(name)}
		t.all[n.name] = n
	case n.users == 0:
		t.unused--
	}
	n.users++
	return n
}

// drop takes one user off a name.
func (t *tubeNames) drop(n *tubeName) {
	if n.users--; n.users > 0 {
		return
	}
	if t.unused++; t.unused <= max(maxUnused, len(t.all)/2) {
		return
	}
	for s, n := range t.all {
		if n.users == 0 {
			delete(t.all, s)
		}
	}
	t.unused = 0
}

// wants are what a client has asked for, besides jobs, if that is not what all clients begin with.
type wants struct {
	used    *tubeName
	watched []*tubeName // in the engine's order
	weights []uint16    // of those; nil if the client has given none
	mode    codec.Mode
	info    bool
	abort   bool
}

// firstTube is the one that clients use and watch at first.
const firstTube = "default"

// clientState is an item of that kind, which counts from the client's next replies on.
type clientState struct {
	client *Client
	flags  uint8
	number uint32
	tube   *tubeName // nil of a choice
}

// MaxInputWindow is how far a window is raised for a client that sends more than the leader executes at once.
const MaxInputWindow = 128 << 10

// maxStates is how many states may come before replies. The leader executes no more commands at a time.
const maxStates = MaxInputWindow

var errStates = errors.New("more states than commands were executed")

// takeState takes what the client will have asked for when it has the next replies.
func (g *Gateway) takeState(f *Client, it *trunk.Item) error {
	k := &g.link
	switch {
	case f.conn == nil:
		return nil // it has gone
	case len(k.states) >= maxStates:
		return errStates
	}
	s := clientState{client: f, flags: it.Flags, number: it.Number}
	if it.Flags != trunk.Chooses {
		s.tube = g.names.get(it.Data)
	}
	k.states = append(k.states, s)
	return nil
}

// settleStates makes true what was said of the client before its replies.
func (g *Gateway) settleStates(f *Client) {
	g.endStates(f, func(s *clientState) { g.settleState(f, s) })
}

// endStates calls f for what was said of a client, and forgets it.
func (g *Gateway) endStates(of *Client, f func(*clientState)) {
	g.link.states = slices.DeleteFunc(g.link.states, func(s clientState) bool {
		if s.client == of {
			f(&s)
			g.dropState(&s)
		}
		return s.client == of
	})
}

// dropStates drops what was said of clients that did not get the replies.
func (g *Gateway) dropStates() {
	for i := range g.link.states {
		g.dropState(&g.link.states[i])
	}
	g.link.states = nil
}

func (g *Gateway) dropState(s *clientState) {
	if s.tube != nil {
		g.names.drop(s.tube)
	}
}

func (g *Gateway) settleState(f *Client, s *clientState) {
	w, names := g.ownWants(f), &g.names
	switch s.flags {
	case trunk.Uses:
		names.drop(w.used)
		w.used = s.tube
		w.used.users++
	case trunk.Watches:
		w.watch(s.tube, uint16(max(1, s.number)))
	case trunk.Ignores:
		if i := slices.Index(w.watched, s.tube); i >= 0 {
			names.drop(s.tube)
			w.watched = swapOut(w.watched, i)
			w.weights = swapOut(w.weights, i)
		}
	case trunk.Chooses:
		w.mode, w.info, w.abort = trunk.ParseChoice(s.number)
	}
}

func (w *wants) watch(t *tubeName, weight uint16) {
	i := slices.Index(w.watched, t)
	if i < 0 {
		i = len(w.watched)
		t.users++
		w.watched = append(w.watched, t)
		if w.weights != nil {
			w.weights = append(w.weights, weight)
		}
	}
	if w.weights == nil && weight != 1 {
		w.weights = ones(len(w.watched))
	}
	if w.weights != nil {
		w.weights[i] = weight
	}
}

// swapOut takes an element out of a list; the last one takes its place, as with the engine's tubes.
func swapOut[T any](list []T, i int) []T {
	if list == nil {
		return nil
	}
	last := len(list) - 1
	list[i] = list[last]
	clear(list[last:])
	return list[:last]
}

func ones(n int) []uint16 {
	list := make([]uint16, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// ownWants returns f.wants, which it makes if need be.
func (g *Gateway) ownWants(f *Client) *wants {
	if f.wants == nil {
		names := &g.names
		first := []byte(firstTube)
		f.wants = &wants{used: names.get(first), watched: []*tubeName{names.get(first)}, mode: codec.FIFO}
	}
	return f.wants
}

// dropWants gives the names back, which stay what they were.
func (g *Gateway) dropWants(f *Client) {
	if w := f.wants; w != nil {
		g.names.drop(w.used)
		for _, t := range w.watched {
			g.names.drop(t)
		}
	}
}

// interests are what the client has asked for.
func (f *Client) interests() engine.Interests {
	w := f.wants
	if w == nil {
		return engine.Interests{Used: firstTube, Watched: []string{firstTube}, Mode: codec.FIFO}
	}
	x := engine.Interests{
		Used: w.used.name, Watched: make([]string, len(w.watched)), Weights: slices.Clone(w.weights),
		Mode: w.mode, Info: w.info, Abort: w.abort,
	}
	for i, t := range w.watched {
		x.Watched[i] = t.name
	}
	if weighs := w.mode == codec.Weighted || w.mode == codec.WeightedFair; weighs && x.Weights == nil {
		x.Weights = ones(len(x.Watched))
	}
	return x
}

// setInterests is for a client that has asked for that before it was forwarded.
func (g *Gateway) setInterests(f *Client, x engine.Interests) {
	names := &g.names
	w := &wants{
		used: names.get([]byte(x.Used)), weights: slices.Clone(x.Weights), mode: x.Mode, info: x.Info, abort: x.Abort,
	}
	for _, t := range x.Watched {
		w.watched = append(w.watched, names.get([]byte(t)))
	}
	f.wants = w
}
