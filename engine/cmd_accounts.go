package engine

import (
	"strings"

	"trellis/engine/account"
)

// listAccounts lists the accounts, with their limits and what they hold: to a client without
// the right to see the whole server, its own only.
func (s *Session) listAccounts(now Time, out *Output) Outcome {
	all := s.loop.engine.Accounts().Snapshots()
	if s.client.Flags&restricted != 0 && s.wait.grant.rights&RightAdmin == 0 {
		own := all[:0]
		for i := range all {
			if s.wait.grant.of == all[i].Name {
				own = append(own, all[i])
			}
		}
		all = own
	}
	li := &listing{items: &accountItems{all}, counted: &accountItems{all}}
	return li.turn(s, now, out)
}

// accountItems are the accounts in a list.
type accountItems struct{ left []account.Snapshot }

func (ai *accountItems) next(b []byte) (_ []byte, ok bool) {
	if len(ai.left) == 0 {
		return b, false
	}
	a := &ai.left[0]
	ai.left = ai.left[1:]
	y := yaml(b)
	y.quoted("- name", a.Name)
	y.quoted("  patterns", strings.Join(a.Tubes, ","))
	for _, x := range a.Amounts() {
		y.signed("  "+x.What, x.Holds)
		y.signed("  max-"+x.What, x.Limit)
		y.number("  refused-"+x.What, x.Refused)
	}
	y.signed("  rate", a.Limits.Rate)
	y.number("  rate-waits", a.Waits)
	return y, true
}
