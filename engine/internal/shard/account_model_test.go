package shard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/account"
)

// rigAccounts are the accounts of a rig. They have no limits, so that no command is answered
// otherwise than without.
type rigAccounts struct {
	accounts account.Accounts
	known    map[string]*account.Account
	tubes    map[string][]string // patterns, by the account's name
}

// set replaces all accounts.
func (a *rigAccounts) set(tubes map[string][]string) {
	a.tubes = tubes
	if a.known == nil {
		a.known = map[string]*account.Account{}
	}
	var list []account.Tubes
	for _, name := range slices.Sorted(maps.Keys(tubes)) {
		if a.known[name] == nil {
			a.known[name] = account.New(name, account.Limits{})
		}
		list = append(list, account.Tubes{Account: a.known[name], Tubes: tubes[name]})
	}
	maps.DeleteFunc(a.known, func(name string, _ *account.Account) bool { return tubes[name] == nil })
	a.accounts.Set(list)
}

// of is the name of the account that has a tube, as the documents say it: the longest pattern
// counts, and a name is longer than any beginning.
func (a *rigAccounts) of(tube string) (account string) {
	longest := -1
	for name, patterns := range a.tubes {
		for _, p := range patterns {
			prefix, ok := strings.CutSuffix(p, "*")
			n := len(prefix)
			switch {
			case !ok && p == tube:
				n = 1000
			case !ok || !strings.HasPrefix(tube, prefix):
				continue
			}
			if n > longest {
				account, longest = name, n
			}
		}
	}
	return account
}

// changeAccounts draws other accounts.
func (r *rig) changeAccounts(t *rapid.T) {
	patterns := []string{"*", "d*"}
	for _, name := range r.names {
		patterns = append(patterns, name, name[:1]+"*", name[:2]+"*")
	}
	slices.Sort(patterns)
	tubes := map[string][]string{}
	for _, p := range slices.Compact(patterns) {
		if name := among(t, "account", "", "", "x", "y", "z"); name != "" {
			tubes[name] = append(tubes[name], p)
		}
	}
	t.Logf("accounts %v", tubes)
	r.shares.set(tubes)
}

// accounts counts what each account holds.
func (m *model) accounts(a *rigAccounts) map[string]account.Limits {
	of := a.of
	all := map[string]account.Limits{}
	add := func(account string, x account.Limits) {
		have := all[account]
		have.Jobs += x.Jobs
		have.Memory += x.Memory
		have.Tubes += x.Tubes
		have.Keys += x.Keys
		all[account] = have
	}
	for _, t := range m.tubes {
		add(of(t.name), account.Limits{Tubes: 1})
	}
	type key struct {
		tube, kind, key string
		limit           uint32
	}
	seen := map[key]bool{}
	once := func(k key, keys, bytes int64) {
		if k.key != "" && !seen[k] {
			seen[k] = true
			add(of(k.tube), account.Limits{Keys: keys, Memory: bytes})
		}
	}
	unique := func(tube, name string) {
		once(key{tube: tube, kind: "unique", key: name}, 1, 0)
		if name != "" {
			once(key{tube: tube, kind: "space", key: "one"}, 0, keyspaceFootprint(tube))
		}
	}
	for _, j := range m.jobs {
		tube, k := j.tube.name, j.keys
		add(of(tube), account.Limits{Jobs: 1, Memory: jobFootprint(uint32(len(j.body)), &k)})
		unique(tube, k.Unique)
		once(key{tube, "limited", k.Limited, 0}, 1, limitedKeyFootprint(k.Limited))
		once(key{tube, "group", k.Limited, k.Limit}, 0, groupMemory)
		once(key{tube: tube, kind: "fair", key: k.Fair()}, 1, fairKeyFootprint(k.Fair()))
	}
	for _, x := range m.tombs {
		add(of(x.tube), account.Limits{Memory: tombstoneFootprint(&x.keys)})
		unique(x.tube, x.keys.Unique)
	}
	for _, c := range m.clients {
		if p := c.incoming; p != nil && p.account != nil && a.known[p.account.Name()] == p.account {
			var keys *journal.Keys
			if p.keys != (journal.Keys{}) {
				keys = &p.keys
			}
			add(p.account.Name(), account.Limits{Jobs: 1, Memory: jobFootprint(0, keys) + counted(p.arrived, uint32(p.size))})
		}
	}
	return all
}

// compareAccounts compares what is counted for accounts with what the model has.
func (r *rig) compareAccounts() {
	want := r.model.accounts(r.shares)
	for _, a := range r.engine.Accounts().Snapshots() {
		if a.Holds != want[a.Name] {
			r.t.Errorf("account %s of %v counts %+v, want %+v", a.Name, a.Tubes, a.Holds, want[a.Name])
		}
	}
}

// accounts checks what tubes and keyspaces know of their accounts.
func (c *census) accounts() {
	d := &c.engine.accounts
	held := map[*account.Tally]account.Limits{}
	add := func(a *account.Tally, tubes, jobs, keys, bytes int64) {
		x := held[a]
		held[a] = account.Limits{Tubes: x.Tubes + tubes, Jobs: x.Jobs + jobs, Keys: x.Keys + keys, Memory: x.Memory + bytes}
	}
	for _, s := range c.sessions {
		if in := s.incomingPut(); in != nil && in.account != nil {
			add(in.account, 0, 1, 0, jobFootprint(0, in.keys)+counted(in.arrived(), in.size))
		}
	}
	for _, sh := range c.engine.shards {
		ofTube := map[uint32]int64{}
		for p := range c.visited {
			if p.Shard() != sh.number {
				continue
			}
			if j := sh.job(p.Ref()); j.state != tombstone {
				keys := sh.keysOf(j)
				ofTube[j.tube] += jobFootprint(j.size, &keys)
			}
		}
		for _, t := range sh.byName {
			bytes := ofTube[t.index]
			if t.limited != nil {
				for s := range t.limited.keys.All() {
					bytes += limitedKeyFootprint(s.key) + groupMemory*int64(len(s.allGroups()))
				}
			}
			if t.fair != nil {
				for k := range t.fair.keys.All() {
					bytes += fairKeyFootprint(k.key)
				}
			}
			c.holding(&t.Holding, d.Of(t.name), bytes, "tube "+t.name)
			add(t.Account(), 1, int64(t.jobs()), t.sharedKeys(), bytes)
		}
		listed := map[*keyspace]bool{}
		var last *keyspace
		for s := sh.spaces; s != nil; last, s = s, s.after {
			listed[s] = true
			if s.before != last {
				c.failf("the keyspaces of shard %d are linked wrongly", sh.number)
			}
		}
		for s := range sh.keyspaces.All() {
			if !listed[s] {
				c.failf("the keyspace %s is not listed", s.name)
			}
			bytes := keyspaceFootprint(s.name)
			for k := s.first; k != nil; k = k.next {
				keys := k.keys()
				bytes += tombstoneFootprint(&keys)
			}
			c.holding(&s.Holding, d.Of(s.name), bytes, "keyspace "+s.name)
			add(s.Account(), 0, 0, int64(s.holders), bytes)
		}
		if len(listed) != sh.keyspaces.Len() || sh.recounting != nil {
			c.failf("shard %d lists %d keyspaces of %d", sh.number, len(listed), sh.keyspaces.Len())
		}
	}
	for _, a := range c.engine.Accounts().Snapshots() {
		a.Holds.Connections = 0
		if want := held[d.Named(a.Name)]; a.Holds != want {
			c.failf("account %s counts %+v, has %+v", a.Name, a.Holds, want)
		}
	}
}

func (c *census) holding(h *account.Holding, account *account.Tally, bytes int64, of string) {
	if h.Memory() != bytes || h.Account() != account {
		c.failf("%s counts %d bytes, has %d; its account is right: %v", of, h.Memory(), bytes, h.Account() == account)
	}
}

// accountOf is the snapshot of an account.
func (e *Engine) accountOf(name string) account.Snapshot {
	for _, a := range e.Accounts().Snapshots() {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("no account %s", name))
}

// changeAccounts has tubes go from account to account until done is closed.
func (c *crew) changeAccounts(tubes []string, done <-chan struct{}) {
	acme, beta := account.New("acme", account.Limits{}), account.New("beta", account.Limits{})
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		default:
		}
		switch i := n % len(tubes); {
		case n%7 == 0:
			c.accounts.Set(nil)
		case n%3 == 0:
			c.accounts.Set([]account.Tubes{{Account: acme, Tubes: tubes[:i+1]}})
		default:
			c.accounts.Set([]account.Tubes{{Account: beta, Tubes: tubes[:i]}, {Account: acme, Tubes: []string{"*"}}})
		}
	}
}
