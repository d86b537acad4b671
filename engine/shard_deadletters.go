package engine

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"trellis/binlog/journal"
)

// A tube's setting of dead letters says that a job whose reservations have failed so many
// times since it was put or last kicked, by release or time-out, is buried in another
// tube. It belongs to the name of the tube: it lies in the shard in which a tube of that
// name lives, whether there is one or not, and a tube refers to it while there is.

// maxSettings is how many settings there may be at a time, so that a list of all stays
// bounded.
const maxSettings = 10_000

var errTooManySettings = errors.New("there are as many settings of dead letters as there may be")

// settings are those of all tubes, for those who want to see all. A setting does not
// change; another one replaces it.
type settings struct {
	mu     sync.Mutex         // taken last, under a shard's lock
	list   []*journal.Setting // by tube
	shared bool               // list was handed out, and must not change
	coming int                // settings that are about to be added
	pos    journal.Pos        // behind the last setting on record
}

// makeRoom makes sure that there may be one more setting.
func (g *settings) makeRoom() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.list)+g.coming >= maxSettings {
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

// keep adds a setting, replaces that of the same tube, or removes it. room says
// that makeRoom has made room for it.
func (g *settings) keep(x *journal.Setting, room bool, pos journal.Pos) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if room {
		g.coming--
	}
	g.pos = max(g.pos, pos)
	if g.shared {
		g.list, g.shared = slices.Clone(g.list), false
	}
	i, found := slices.BinarySearchFunc(g.list, x.Tube, func(s *journal.Setting, tube string) int { return strings.Compare(s.Tube, tube) })
	switch {
	case x.MaxAttempts == 0 && found:
		g.list = slices.Delete(g.list, i, i+1)
	case x.MaxAttempts == 0:
	case found:
		g.list[i] = x
	default:
		g.list = slices.Insert(g.list, i, x)
	}
}

// snapshot returns all settings by the names of their tubes, and the position in the
// journal that they depend on. The list does not change.
func (g *settings) snapshot() ([]*journal.Setting, journal.Pos) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shared = true
	return g.list, g.pos
}

// recorded is the position in the journal behind the last setting.
func (g *settings) recorded() journal.Pos {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pos
}

// set records a tube's setting and puts it in force. The shard is the one in which the
// tube lives, and is locked.
func (sh *shard) set(x *journal.Setting, out *Output) error {
	e := sh.shared
	fresh := sh.settings[x.Tube] == nil
	if fresh && x.MaxAttempts == 0 {
		out.dependOn(e.settings.recorded())
		return nil
	}
	if fresh && !e.settings.makeRoom() {
		return errTooManySettings
	}
	var pos journal.Pos
	if sh.journaled() {
		var err error
		if pos, err = e.cfg.Journal.Set(x); err != nil {
			if fresh {
				e.settings.cancel()
			}
			return err
		}
		out.recorded(pos)
	}
	e.settings.keep(x, fresh, pos)
	sh.putInForce(x)
	return nil
}

// putInForce has a setting count for the jobs of its tube.
func (sh *shard) putInForce(x *journal.Setting) {
	if x.MaxAttempts > 0 {
		if sh.settings == nil {
			sh.settings = make(map[string]*journal.Setting)
		}
		sh.settings[x.Tube] = x
	} else {
		delete(sh.settings, x.Tube)
	}
	if t := sh.byName[x.Tube]; t != nil {
		t.dead = sh.deadLetters(x.Tube)
	}
}

// deadLetters is the setting that counts for the jobs of a tube, nil if there is none.
func (sh *shard) deadLetters(tube string) *journal.Setting {
	if sh.shared.cfg.Stock {
		return nil
	}
	return sh.settings[tube]
}

// exhausts tells whether a job becomes a dead letter by ch, the end of a reservation that has
// failed.
func (t *tube) exhausts(ch *change) bool {
	return t.dead != nil && ch.counters.attempts >= t.dead.MaxAttempts
}

// buryDead records that a job whose reservation has ended, as ch tells, is buried at the
// tail of its tube's dead tube, and moves it. Its own shard and the dead tube's are locked.
// If that cannot be, nothing changes.
func (sh *shard) buryDead(r ref, j *job, ch change, to *shard, out *Output) error {
	t := sh.tubes[j.tube]
	dead := t.dead.DeadTube
	ch.to, ch.at = buried, Time(to.buries+1)
	ch.counters.buries++
	var err error
	if dead == t.name {
		err = sh.change(r, j, &ch, out)
		sh.dispatch(t)
	} else {
		err = sh.moveTo(r, j, &ch, to, dead, out)
	}
	if err == nil {
		to.totals.deadLetters++
	}
	return err
}

// timeOut ends a reservation whose time to run has ended. It returns false, and has
// changed nothing, if it could not have the lock of the dead tube's shard.
func (sh *shard) timeOut(r ref, j *job) bool {
	ch := sh.present(j)
	ch.to = ready
	ch.counters.timeouts++
	ch.counters.attempts++
	t := sh.tubes[j.tube]
	if t.exhausts(&ch) {
		buried, ok := sh.timeOutDead(r, j, &ch)
		if buried || !ok {
			return ok
		}
	}
	sh.totals.timeouts++
	if t.dead != nil {
		sh.recordTimeOut(j, &ch)
	}
	sh.apply(r, j, &ch)
	sh.dispatch(t)
	return true
}

// timeOutDead makes a job a dead letter by a time-out. If there is no room for that, it
// is not buried. It returns false for ok if it could not have the lock of the dead tube's
// shard.
func (sh *shard) timeOutDead(r ref, j *job, ch *change) (buried, ok bool) {
	to := sh.shared.shardFor([]byte(sh.tubes[j.tube].dead.DeadTube))
	entered, ok := sh.enter(to)
	if !ok {
		return false, false
	}
	sh.moves -= deadMoves + int(j.size/deadMoveBytes)
	if j.flags != 0 {
		sh.moves -= keyedMoveCost / 4 // its keys move as well
	}
	var out Output // nobody waits for it
	err := sh.buryDead(r, j, *ch, to, &out)
	if entered {
		to.unlock(sh.by)
	}
	if err != nil {
		return false, true
	}
	sh.totals.timeouts++
	return true, true
}

// What a dead letter takes of shard.moves besides its time-out: it is recorded as a whole,
// and copied if its dead tube lies in another shard.
const (
	deadMoves     = 4
	deadMoveBytes = 512 // of the body, for each further one
)

// recordTimeOut puts a time-out on record, so that a restart does not give the job its
// attempts again. If the journal has no room, it does: the job becomes ready in any case.
func (sh *shard) recordTimeOut(j *job, ch *change) {
	log := sh.shared.cfg.Journal
	if log == nil {
		return
	}
	if pos, err := log.Update(sh.describe(j, ch)); err == nil {
		sh.recorded(pos)
	}
}

// enter takes the lock of another shard while this one does what is due in it. What is due
// in the other is left alone. ok is false if the lock is taken by somebody who may be waiting
// for this one: locks are waited for in the order of the shards' numbers only. entered tells
// that the lock is to be released.
func (sh *shard) enter(to *shard) (entered, ok bool) {
	c := sh.by
	switch {
	case to == sh || c.held&to.self != 0:
		return false, true
	case to.number > sh.number:
		to.mu.Lock()
	case !to.mu.TryLock():
		return false, false
	}
	to.by = c
	c.held |= to.self
	return true, true
}
