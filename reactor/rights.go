package reactor

import (
	"errors"
	"time"

	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// What clients of a gateway may do: the gateway knows them, and the leader executes their commands. The
// gateway tells the leader of each grant once, and then names it by a number. What the leader denies it tells
// the gateway, for the gateway's Config.Audit.

const (
	// maxKnown is of how many grants the leader knows at a time.
	maxKnown = 1 << 10
	// maxGrant is how many bytes of items a grant may have.
	maxGrant = maxGrants / maxKnown
)

// knownGrants are those of which a gateway has told the leader. The number of the oldest becomes that of the
// next: clients that were opened with it keep what they had.
type knownGrants struct {
	numbers map[*engine.Grant]uint32
	grants  []*engine.Grant // that of number n at n-1
	oldest  int
}

// numberOf is the number under which the leader knows a client's grant, 0 for none. It is told of the
// grant if need be. ok is false for a grant that no leader takes.
func (g *gateway) numberOf(grant *engine.Grant) (number uint32, ok bool) {
	t := &g.known
	if n := t.numbers[grant]; n != 0 || grant == nil {
		return n, true
	}
	items := grantItems(grant)
	if items == nil {
		return 0, false
	}
	if t.numbers == nil {
		t.numbers = make(map[*engine.Grant]uint32)
	}
	if len(t.grants) < maxKnown {
		t.grants = append(t.grants, grant)
		number = uint32(len(t.grants))
	} else {
		delete(t.numbers, t.grants[t.oldest])
		t.grants[t.oldest] = grant
		number = uint32(t.oldest + 1)
		t.oldest = (t.oldest + 1) % maxKnown
	}
	t.numbers[grant] = number
	for i := range items {
		items[i].Number = number
		g.trunk.send(&items[i])
	}
	return number, true
}

// grantItems are what tells of a grant but for its number; none if it is too large.
func grantItems(grant *engine.Grant) (items []trunk.Item) {
	name, account, rights, tubes := grant.Terms()
	part := trunk.Grant{Name: name, Account: account, Rights: uint8(rights), Tubes: tubes}
	size := 0
	for {
		it := trunk.Item{Kind: trunk.KindGrant}
		it.Data, part.Tubes = part.Append(nil)
		if size += len(it.Data); size > maxGrant {
			return nil
		}
		if part.Tubes != nil {
			it.Flags = trunk.More
		}
		if items = append(items, it); part.Tubes == nil {
			return items
		}
	}
}

// begin sends a client of a gateway the reply to its token, and passes on what has come behind it.
func (c *conn) begin(now time.Duration, p []byte) {
	c.flush()
	c.noteActivity(now)
	if len(p) > 0 && c.phase == forwarded {
		c.pass(now, p)
	} else if c.x != nil || c.loop.draining {
		c.conclude(now)
	}
}

// Denied implements engine.Carrier.
func (l *loop) Denied(s *engine.Session, d *engine.Deed) bool {
	c := connOf(s)
	if !c.listener.channel() {
		return false
	}
	h := c.channel()
	denied := trunk.Denied{Command: d.Op.String(), Tube: d.Tube, To: d.To, Result: d.Result, ID: d.ID}
	h.trunk.say(trunk.Item{Kind: trunk.KindDenied, Channel: h.number, Data: denied.Append(nil)})
	return true
}

// denied takes what the leader has denied a client.
func (g *gateway) denied(f *forward, it *trunk.Item) error {
	d, err := trunk.ParseDenied(it.Data)
	audit := g.loop.server.cfg.Audit
	switch {
	case err != nil:
		return err
	case f.grant == nil:
		return errors.New("something was denied to a client that may do everything")
	case audit == nil:
		return nil
	}
	peer := ""
	if f.conn != nil { // otherwise it has gone
		peer = f.conn.endpoint().String()
	}
	audit(engine.Deed{
		Client: f.grant.Name(), Op: codec.OpNamed(d.Command), Tube: d.Tube, To: d.To, ID: d.ID, Result: d.Result, Denied: true,
	}.At(peer))
	return nil
}
