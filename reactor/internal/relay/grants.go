package relay

import (
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// What clients of a gateway may do: the gateway knows them, and the leader executes their commands. The gateway sends
// the leader each grant once, and then names it by a number.

const (
	// maxGrants is how many bytes of grants a gateway may have on a trunk.
	maxGrants = 64 << 20
	// maxNumbers is how many grants the leader knows at a time.
	maxNumbers = 1 << 10
	// maxGrant is how many bytes of items a grant may have.
	maxGrant = maxGrants / maxNumbers
)

// grantNumbers are the grants that the leader knows. The number of the oldest becomes that of the next: clients that
// were opened with it keep what they had.
type grantNumbers struct {
	numbers map[*engine.Grant]uint32
	grants  []*engine.Grant // that of number n at n-1
	oldest  int
}

// add gives a grant a number.
func (t *grantNumbers) add(g *engine.Grant) (number uint32) {
	if t.numbers == nil {
		t.numbers = make(map[*engine.Grant]uint32)
	}
	if len(t.grants) < maxNumbers {
		t.grants = append(t.grants, g)
		number = uint32(len(t.grants))
	} else {
		delete(t.numbers, t.grants[t.oldest])
		t.grants[t.oldest] = g
		number = uint32(t.oldest + 1)
		t.oldest = (t.oldest + 1) % maxNumbers
	}
	t.numbers[g] = number
	return number
}

// grantNumber is the number under which the leader knows a client's grant, 0 for none. The grant is sent if need be.
// ok is false for a grant that no leader takes.
func (k *link) grantNumber(g *engine.Grant) (number uint32, ok bool) {
	if n := k.grants.numbers[g]; n != 0 || g == nil {
		return n, true
	}
	items := grantItems(g)
	if items == nil {
		return 0, false
	}
	number = k.grants.add(g)
	for i := range items {
		items[i].Number = number
		k.send(items[i])
	}
	return number, true
}

// grantItems are the items of a grant but for its number; none if it is too large.
func grantItems(g *engine.Grant) (items []trunk.Item) {
	name, account, rights, tubes := g.Terms()
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

// givenGrants are what clients of a gateway may do, by the numbers under which it names them.
type givenGrants struct {
	all   map[uint32]givenGrant
	parts map[uint32]grantPart // of those of which more is to come
	size  int                  // of all grants and parts, as data of items
}

type givenGrant struct {
	*engine.Grant
	size int
}

// grantPart is what has come of a grant.
type grantPart struct {
	tubes []string
	size  int
}

func newGivenGrants() givenGrants {
	return givenGrants{all: make(map[uint32]givenGrant), parts: make(map[uint32]grantPart)}
}

// get returns the grant of a number, which is nil for 0. It reports false if there is none.
func (t *givenGrants) get(number uint32) (g *engine.Grant, ok bool) {
	g = t.all[number].Grant
	return g, g != nil || number == 0
}

// take takes what clients may do, or a part of it.
func (t *givenGrants) take(it *trunk.Item) error {
	part, err := trunk.ParseGrant(it.Data)
	if err != nil {
		return err
	}
	g := t.parts[it.Number]
	g.tubes = append(g.tubes, part.Tubes...)
	g.size += len(it.Data)
	if t.size += len(it.Data); t.size > maxGrants {
		return misuse(0, "more grants than may be kept")
	}
	if it.Flags&trunk.More != 0 {
		t.parts[it.Number] = g
		return nil
	}
	delete(t.parts, it.Number)
	t.size -= t.all[it.Number].size
	grant := engine.NewGrant(part.Name, engine.Rights(part.Rights), g.tubes).In(part.Account)
	t.all[it.Number] = givenGrant{Grant: grant, size: g.size}
	return nil
}
