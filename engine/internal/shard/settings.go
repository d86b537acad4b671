package shard

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/settings"
)

var errTooManySettings = errors.New("there are as many settings of tubes as there may be")

// A tube's setting says how its jobs are handed out, and what becomes of those that fail. It
// belongs to the name of the tube: it lies in the shard in which a tube of that name lives,
// whether there is one or not, and a tube refers to it while there is.

// set records the setting of a tube, which the shard has, and puts it in force. out depends on the
// record, or, if nothing changes, on what made it so.
func (sh *shard) set(x *journal.Setting, out *reply.Output) error {
	e := sh.shared
	was := sh.setting(x.Tube)
	if was.Policy == x.Policy {
		out.DependOn(e.settings.Recorded())
		return nil
	}
	fresh := was.IsDefault()
	if fresh && !e.settings.MakeRoom() {
		return errTooManySettings
	}
	var pos journal.Pos
	if sh.journaled() {
		var err error
		recorded := *x
		recorded.Origin = out.Source().Origin()
		if pos, err = e.log.Journal.Set(&recorded); err != nil {
			if fresh {
				e.settings.Cancel()
			}
			return err
		}
		out.Recorded(pos)
	}
	e.settings.Keep(x, fresh, pos)
	sh.putInForce(x)
	return nil
}

// ChangeSetting changes the policy of the tubes of that name, as change says, and records that. If jobs linger by it
// that did not before, or it is as it was, rest has to put on record what is reserved; otherwise that is nil.
func (c *Tx) ChangeSetting(
	now clock.Time, tube string, change func(*journal.Policy), out *reply.Output,
) (rest Work, err error) {
	sh := c.shared.shardFor([]byte(tube))
	sh.lock(c, now)
	x := sh.setting(tube)
	was := x.Policy
	change(&x.Policy)
	err = sh.set(&x, out)
	sh.unlock(c)
	if err == nil && x.Linger > 0 && (was.Linger == 0 || was == x.Policy) {
		rest = &outlastScan{scanOf(sh, tube), 0}
	}
	return rest, err
}

// Settings returns all settings by the names of their tubes, or that of the tubes of one name, as a list of one or
// none; and what that depends on.
func (c *Tx) Settings(now clock.Time, tube []byte) (list settings.Cursor, pos journal.Pos) {
	if len(tube) == 0 {
		return c.shared.settings.Snapshot()
	}
	sh := c.shared.shardFor(tube)
	sh.lock(c, now)
	x := sh.settings[string(tube)]
	sh.unlock(c)
	if x != nil {
		list = settings.One(x)
	}
	return list, c.shared.settings.Recorded()
}

// setting is that of a tube, the defaults if it has none.
func (sh *shard) setting(tube string) journal.Setting {
	if x := sh.settings[tube]; x != nil {
		return *x
	}
	return journal.Setting{Tube: tube, Policy: journal.DefaultPolicy}
}

// putInForce gives a tube what its setting says.
func (sh *shard) putInForce(x *journal.Setting) {
	sh.countLingering(sh.settings[x.Tube], -1)
	sh.countLingering(x, 1)
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
	if t := sh.byName[x.Tube]; t != nil && !t.lingers() && !sh.still {
		t.endOrphans()
	}
}

// policy is what counts for a tube, nil if that is the default.
func (sh *shard) policy(tube string) *journal.Policy {
	x := sh.settings[tube]
	if x == nil || sh.shared.cfg.Stock {
		return nil
	}
	return &x.Policy
}
