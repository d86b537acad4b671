package account

import (
	"slices"
	"strings"
)

// directory tells whose a tube is. It does not change.
type directory struct {
	all      []*Tally
	names    map[string]*Tally
	prefixes map[string]*Tally
	lengths  []int // of prefixes, each once, the longest first
}

// newDirectory makes a directory of accounts, which have different patterns.
func newDirectory(all []*Tally) *directory {
	d := &directory{all: all, names: make(map[string]*Tally), prefixes: make(map[string]*Tally)}
	for _, a := range all {
		for _, p := range *a.patterns.Load() {
			prefix, ok := strings.CutSuffix(p, "*")
			if !ok {
				d.names[p] = a
				continue
			}
			d.prefixes[prefix] = a
			d.lengths = append(d.lengths, len(prefix))
		}
	}
	slices.Sort(d.lengths)
	slices.Reverse(d.lengths)
	d.lengths = slices.Compact(d.lengths)
	return d
}

// of returns the account of the tube of that name, nil if it is nobody's.
func (d *directory) of(tube string) *Tally {
	if d == nil {
		return nil
	}
	if a := d.names[tube]; a != nil {
		return a
	}
	for _, n := range d.lengths {
		if n <= len(tube) {
			if a := d.prefixes[tube[:n]]; a != nil {
				return a
			}
		}
	}
	return nil
}

// tallyOf returns what is counted of an account, nil if the directory does not have it.
func (d *directory) tallyOf(a *Account) *Tally {
	if d != nil {
		for _, t := range d.all {
			if t.account == a {
				return t
			}
		}
	}
	return nil
}

// named returns what is counted of the account of that name, nil if there is none.
func (d *directory) named(name string) *Tally {
	if d != nil && name != "" {
		for _, t := range d.all {
			if t.account.name == name {
				return t
			}
		}
	}
	return nil
}
