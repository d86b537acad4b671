package engine

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"trellis/binlog/journal"
	"trellis/engine/internal/reply"
)

// A tube's setting says how its jobs are handed out, and what becomes of those that fail. It
// belongs to the name of the tube: it lies in the shard in which a tube of that name lives,
// whether there is one or not, and a tube refers to it while there is.

// maxSettings is how many settings there may be at a time.
const maxSettings = 100_000

var errTooManySettings = errors.New("there are as many settings of tubes as there may be")

// settings are those of all tubes, for those who want to see all. A setting does not change;
// another one replaces it. The list lies in pages, as that of the registry does.
type settings struct {
	mu        sync.Mutex     // taken last, under a shard's lock
	pages     []*settingPage // by tube; none is empty
	count     int
	coming    int         // settings that are about to be added
	snapshots uint64      // that were ever made
	pos       journal.Pos // behind the last setting on record
}

// pageSettings is how many settings a page has at most.
const pageSettings = 256

// settingPage is a part of the list.
type settingPage struct {
	list  []*journal.Setting
	since uint64 // settings.snapshots when it was made or copied
}

func (p *settingPage) compare(tube string) int { return cmp.Compare(p.list[0].Tube, tube) }

// makeRoom makes sure that there may be one more setting.
func (g *settings) makeRoom() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count+g.coming >= maxSettings {
		return false
	}
	g.coming++
	return true
}

// cancel undoes makeRoom.
func (g *settings) cancel() {
	g.mu.Lock()
	g.coming--
	g.mu.Unlock()
}

// keep adds a setting, replaces that of the same tube, or removes it. room says that makeRoom has
// made room for it.
func (g *settings) keep(x *journal.Setting, room bool, pos journal.Pos) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if room {
		g.coming--
	}
	g.pos = max(g.pos, pos)
	at, first := slices.BinarySearchFunc(g.pages, x.Tube, (*settingPage).compare)
	if !first && at > 0 {
		at--
	}
	if at == len(g.pages) {
		if x.IsDefault() {
			return
		}
		g.pages = append(g.pages, &settingPage{since: g.snapshots})
	}
	p := g.own(at)
	i, found := slices.BinarySearchFunc(p.list, x.Tube, func(s *journal.Setting, tube string) int {
		return cmp.Compare(s.Tube, tube)
	})
	switch {
	case found && x.IsDefault():
		p.list = slices.Delete(p.list, i, i+1)
		if g.count--; len(p.list) == 0 {
			g.pages = slices.Delete(g.pages, at, at+1)
		}
	case found:
		p.list[i] = x
	case !x.IsDefault():
		g.count++
		p.list = slices.Insert(p.list, i, x)
		if n := len(p.list); n > pageSettings {
			g.pages = slices.Insert(g.pages, at+1, &settingPage{slices.Clone(p.list[n/2:]), g.snapshots})
			p.list = slices.Delete(p.list, n/2, n)
		}
	}
}

// own returns a page that no snapshot has. With mu held.
func (g *settings) own(at int) *settingPage {
	if p := g.pages[at]; p.since != g.snapshots {
		g.pages[at] = &settingPage{slices.Clone(p.list), g.snapshots}
	}
	return g.pages[at]
}

// A settingList is what is left of a list of settings.
type settingList struct {
	pages []*settingPage
	at    int // in the first of pages
}

// Next is the next setting of the list, nil at its end.
func (l *settingList) Next() *journal.Setting {
	if len(l.pages) == 0 {
		return nil
	}
	x := l.pages[0].list[l.at]
	if l.at++; l.at == len(l.pages[0].list) {
		l.pages, l.at = l.pages[1:], 0
	}
	return x
}

// snapshot returns all settings by the names of their tubes, and the position in the
// journal that they depend on. The list does not change.
func (g *settings) snapshot() (settingList, journal.Pos) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.snapshots++
	return settingList{pages: slices.Clone(g.pages)}, g.pos
}

// recorded is the position in the journal behind the last setting.
func (g *settings) recorded() journal.Pos {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pos
}

// size is how many settings there are.
func (g *settings) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// set records the setting of a tube, which the shard has, and puts it in force. out depends on the
// record, or, if nothing changes, on what made it so.
func (sh *shard) set(x *journal.Setting, out *reply.Output) error {
	e := sh.shared
	was := sh.setting(x.Tube)
	if was.Policy == x.Policy {
		out.DependOn(e.settings.recorded())
		return nil
	}
	fresh := was.IsDefault()
	if fresh && !e.settings.makeRoom() {
		return errTooManySettings
	}
	var pos journal.Pos
	if sh.journaled() {
		var err error
		recorded := *x
		recorded.Origin = out.Source().Origin()
		if pos, err = e.cfg.Journal.Set(&recorded); err != nil {
			if fresh {
				e.settings.cancel()
			}
			return err
		}
		out.Recorded(pos)
	}
	e.settings.keep(x, fresh, pos)
	sh.putInForce(x)
	return nil
}

// ChangeSetting changes the policy of the tubes of that name, as change says, and records that.
func (c *tx) ChangeSetting(now Time, tube string, change func(*journal.Policy), out *reply.Output) error {
	sh := c.shared.shardFor([]byte(tube))
	sh.lock(c, now)
	x := sh.setting(tube)
	change(&x.Policy)
	err := sh.set(&x, out)
	sh.unlock(c)
	return err
}

// SettingOf returns the setting of the tubes of that name, as a list of one or none, and what that depends on.
func (c *tx) SettingOf(now Time, tube []byte) (list settingList, pos journal.Pos) {
	sh := c.shared.shardFor(tube)
	sh.lock(c, now)
	x := sh.settings[string(tube)]
	sh.unlock(c)
	if x != nil {
		list.pages = []*settingPage{{list: []*journal.Setting{x}}}
	}
	return list, c.shared.settings.recorded()
}

// allSettings returns all settings by the names of their tubes, and what they depend on.
func (e *shared) allSettings() (settingList, journal.Pos) { return e.settings.snapshot() }

// setting is that of a tube, the defaults if it has none.
func (sh *shard) setting(tube string) journal.Setting {
	if x := sh.settings[tube]; x != nil {
		return *x
	}
	return journal.Setting{Tube: tube, Policy: journal.DefaultPolicy}
}

// putInForce gives a tube what its setting says.
func (sh *shard) putInForce(x *journal.Setting) {
	if !x.IsDefault() {
		if sh.settings == nil {
			sh.settings = make(map[string]*journal.Setting)
		}
		sh.settings[x.Tube] = x
	} else {
		delete(sh.settings, x.Tube)
	}
	if t := sh.byName[x.Tube]; t != nil {
		t.policy = sh.policy(x.Tube)
		t.classify()
	}
	sh.putLimitsInForce(x)
}

// policy is what counts for a tube, nil if that is the default.
func (sh *shard) policy(tube string) *journal.Policy {
	x := sh.settings[tube]
	if x == nil || sh.shared.cfg.Stock {
		return nil
	}
	return &x.Policy
}
