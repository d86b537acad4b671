package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/wire"
	"trellis/binlog/vfs/faultfs"
	"trellis/cmd/internal/control"
)

// disturb makes something happen to a machine, to the network, or to the leader.
func (c *group) disturb() {
	m := c.victim()
	o := c.machines[c.rng.IntN(len(c.machines))]
	f := c.rng.IntN(28)
	if c.plan.older && c.rng.IntN(3) == 0 {
		f = 28
	}
	if c.plan.calm {
		c.heal() // a majority is left
		m, f = c.leader(m), []int{11, 12, 18, 18, 20, 21}[c.rng.IntN(6)]
	}
	if c.plan.brisk {
		c.heal()
		m, f = c.leader(m), []int{0, 3, 8, 11, 12, 17, 18, 18, 18, 18}[c.rng.IntN(10)]
	}
	c.world.note(m.name, fmt.Sprintf("fault %d", f), nil)
	switch f {
	case 0, 1:
		c.isolate(m, true)
	case 2:
		c.net.set(link{m.name, o.name}, func(x *condition) { x.cut = true })
	case 3:
		c.set(c.rng.Float64()/3, 0)
	case 4:
		c.set(0, c.rng.Float64())
	case 5:
		delay := upTo(c.rng, 300*time.Millisecond)
		c.links(func(x *condition) { x.delay = delay })
	case 6:
		rate := 5_000 + c.rng.IntN(200_000)
		c.links(func(x *condition) { x.rate = rate })
	case 7, 8:
		c.net.sever(c.rng, func(l link) bool { return l.from != clientHost && l.to != clientHost })
	case 9:
		m.freeze(true)
	case 10:
		pace := 1 - c.rng.Float64()/5
		if c.plan.fast {
			pace = m.clock.pace
		}
		m.clock.set(pace, upTo(c.rng, 2*time.Hour)-time.Hour)
	case 11:
		m.kill(false, nil)
	case 12, 13:
		c.powerFails([]*machine{m})
	case 14:
		m.faulty = true
		m.disk.freeze(true)
		// Most stalls are short, some are so long that the member ends.
		c.world.after(100*time.Millisecond+upTo(c.rng, time.Second)*time.Duration(1+c.rng.IntN(40)), func() { m.disk.freeze(false) })
	case 15:
		m.faulty = true
		m.disk.set(func() { m.disk.fails = 20 + c.rng.IntN(200) })
	case 16:
		m.disk.fs.SetCapacity(m.disk.fs.Used() + c.rng.Int64N(100_000))
	case 17:
		m.disk.set(func() { m.disk.slow = upTo(c.rng, 200*time.Millisecond) })
	case 18:
		c.transfer()
	case 19:
		c.powerFails(c.machines)
		c.heal()
	case 21:
		c.partTrunk(o)
	case 22, 23:
		c.catchLeader()
	case 24:
		c.heal()
		c.isolateFor(m, 8*time.Second+upTo(c.rng, 10*time.Second))
		c.world.sleep(upTo(c.rng, 15*time.Second)) // so that the leader may give up m's clients
	case 25:
		c.breakOff()
	case 26:
		c.halveBatch(c.leader(m))
	case 27:
		c.replace(m)
	case 28:
		c.upgrade(m)
	default:
		c.heal()
	}
}

// victim is the leader as often as any other machine.
func (c *group) victim() *machine {
	m := c.machines[c.rng.IntN(len(c.machines))]
	if c.rng.IntN(2) == 0 {
		return c.leader(m)
	}
	return m
}

// leader is the one that serves, or else another machine.
func (c *group) leader(otherwise *machine) *machine {
	if i := slices.IndexFunc(c.machines, func(m *machine) bool { return m.running().leads() }); i >= 0 {
		return c.machines[i]
	}
	return otherwise
}

// isolate cuts a machine off from all others, or ends that for those that do not stand still.
func (c *group) isolate(m *machine, on bool) {
	for _, o := range c.machines {
		if !on && (m.stands() || o.stands()) {
			continue
		}
		for _, l := range []link{{m.name, o.name}, {o.name, m.name}} {
			c.net.set(l, func(x *condition) { x.cut = on })
		}
	}
}

// isolateFor cuts a machine off for a while.
func (c *group) isolateFor(m *machine, d time.Duration) {
	c.isolate(m, true)
	c.world.after(d, func() { c.isolate(m, false) })
}

// partTrunk has a gateway be without its leader for a moment, which its clients do not notice.
func (c *group) partTrunk(m *machine) {
	l := c.leader(m)
	for range 8 {
		c.net.sever(c.rng, func(x link) bool { return x == link{m.name, l.name} })
	}
	c.isolateFor(m, upTo(c.rng, time.Second))
	c.world.sleep(3 * time.Second)
}

// breakOff ends connections between machines, which are slow, for the ends that have begun them. What these have sent
// still comes; the others hear of the end when they send something.
func (c *group) breakOff() {
	delay := upTo(c.rng, 100*time.Millisecond)
	c.links(func(x *condition) { x.delay = delay })
	for range 5 {
		c.world.sleep(upTo(c.rng, time.Second))
		c.net.pick(c.rng, func(x *conn) bool { return x.trunk && x.end == nil }, func(x *conn) {
			x.end = syscall.ECONNRESET
			x.wake()
		})
	}
}

// catchLeader has something happen to the leader while what it does is not on all disks: right behind a reply, power
// fails there and at those whom it needed for that, or it is cut off while it hands over.
func (c *group) catchLeader() {
	c.heal()
	c.world.sleep(upTo(c.rng, 4*time.Second))
	l := c.leader(nil)
	if l == nil {
		return
	}
	others := slices.DeleteFunc(slices.Clone(c.machines), func(m *machine) bool { return m == l })
	c.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	slow := func(d time.Duration) {
		for _, m := range others {
			m.disk.set(func() { m.disk.slow = d })
		}
	}
	slow(300 * time.Millisecond)
	defer slow(c.plan.sync)
	if c.rng.IntN(2) == 0 {
		c.world.sleep(upTo(c.rng, time.Second))
		c.transfer()
		c.world.sleep(upTo(c.rng, 50*time.Millisecond))
		c.isolateFor(l, time.Second+upTo(c.rng, 3*time.Second))
		return
	}
	needed, rest := others[:len(others)/2], others[len(others)/2:]
	for _, m := range rest {
		c.isolate(m, true)
	}
	c.world.sleep(upTo(c.rng, 500*time.Millisecond))
	answered := c.recorder.Answered()
	for i := 0; i < 300 && c.recorder.Answered() == answered; i++ {
		c.world.sleep(2 * time.Millisecond)
	}
	c.powerFails(append(needed, l))
	for _, m := range rest {
		c.isolate(m, false)
	}
	for _, m := range needed { // all but the leader go on
		c.restart(m)
	}
}

// powerFails has that happen to some machines at once.
func (c *group) powerFails(machines []*machine) {
	for _, m := range machines {
		c.net.off(m.name, true)
		m.disk.fs.Off()
	}
	for _, m := range machines {
		m.kill(true, func(fs *faultfs.FS) *faultfs.FS { return fs.PowerCut(m.rng) })
	}
}

// halveBatch kills a leader that has sent a part of a long reply to a client of another member. The next leader has one
// of the two jobs of which the reply tells: the time to run of the other one ends meanwhile.
func (c *group) halveBatch(l *machine) {
	c.heal()
	gateway := c.machines[(slices.Index(c.machines, l)+1)%len(c.machines)]
	rate := 20_000 + c.rng.IntN(20_000)
	c.operators.Go(func() {
		slow := func() { c.links(func(x *condition) { x.rate = rate }) }
		if err := c.recorder.ReserveMuch(gateway.addr, slow); err != nil {
			c.wrong("%v", err)
		}
	})
	c.world.sleep(time.Second + upTo(c.rng, time.Second))
	l.kill(false, nil)
	c.links(func(x *condition) { x.rate = 0 })
	c.world.sleep(upTo(c.rng, 5*time.Second))
}

// links changes the links between machines, in both directions.
func (c *group) links(change func(*condition)) {
	for _, m := range c.machines {
		for _, o := range c.machines {
			c.net.set(link{m.name, o.name}, change)
		}
	}
}

// transfer has the leader hand over.
func (c *group) transfer() {
	for m, p := range c.running() {
		if !p.leads() {
			continue
		}
		patience := time.Second + upTo(c.rng, 5*time.Second)
		c.operators.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err := p.member.HandOver(ctx)
			c.world.note(m.name, fmt.Sprintf("transfer: %v", err), nil)
		})
	}
}

// upgrade gives machines the present program, one after the other.
func (c *group) upgrade(machines ...*machine) {
	for _, m := range machines {
		if m.newest != 0 {
			m.kill(false, nil)
			m.newest = 0
			m.disk.set(func() { m.disk.fails = 0 })
			c.restart(m)
			c.world.sleep(time.Second)
		}
	}
}

// replace has a machine lose all that its disk has. An operator has what it is then take the place of the member that
// it was.
func (c *group) replace(m *machine) {
	if c.replaces.Swap(true) {
		return
	}
	was := m.id.Load()
	m.newest = 0 // without it, the others may agree on a version that its program does not read
	m.kill(false, func(*faultfs.FS) *faultfs.FS { return faultfs.New(dir) })
	m.disk.set(func() { m.disk.fails = 0 })
	c.restart(m)
	var addrs []string
	for _, n := range c.nodes() {
		addrs = append(addrs, n.Addr)
	}
	k := control.Client{Wire: wire.ClientConfig{Dial: m.dial}, Timeout: time.Second}
	c.operators.Go(func() {
		for !c.failed() && !c.replaceMember(k, addrs, m, was) {
			c.world.sleep(200 * time.Millisecond)
		}
	})
}

// replaceMember does the next step, and reports whether the machine is another member than it was.
func (c *group) replaceMember(k control.Client, addrs []string, m *machine, was uint64) (done bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	v, err := k.Look(ctx, addrs, false)
	r := control.Request{Op: control.OpAdd, Node: m.self.Node().String()}
	if err == nil {
		o, ok := v.Member(m.name)
		switch id := uint64(o.ID); {
		case id == was:
			r = control.Request{Op: control.OpRemove, Node: m.name}
		case ok && o.Voter:
			m.id.Store(id)
			c.replaces.Store(false)
			return true
		}
		_, err = k.Lead(ctx, addrs, r, nil)
	}
	// Of what has failed, its text may name either of two deadlines of one instant.
	c.world.note(m.name, fmt.Sprintf("%s: done is %t", r.Op, err == nil), nil)
	return false
}

// heal ends all faults, and starts all processes that are down.
func (c *group) heal() {
	c.set(0, 0)
	for _, m := range c.machines {
		m.freeze(false)
		m.disk.freeze(false)
		m.disk.set(func() { m.disk.fails, m.disk.slow = 0, c.plan.sync })
		m.disk.fs.SetCapacity(0)
		for _, o := range append(c.hosts(), clientHost) {
			c.net.set(link{m.name, o}, func(x *condition) { *x = condition{} })
			c.net.set(link{o, m.name}, func(x *condition) { *x = condition{} })
		}
	}
	for _, m := range c.machines {
		c.restart(m)
	}
}

// restart starts a member that is down, and judges why it has ended.
func (c *group) restart(m *machine) {
	m.mu.Lock()
	run, err := m.run, m.err
	m.mu.Unlock()
	if run != nil {
		return
	}
	for _, never := range []error{replica.ErrDiverged, replica.ErrForgot, replica.ErrRemoved, replica.ErrStuck} {
		if errors.Is(err, never) {
			c.wrong("%s has ended: %v", m.name, err)
		}
	}
	// A member may end before kill has taken it away, and one that is to be another member while its disk is full.
	full := errors.Is(err, syscall.ENOSPC) && c.replaces.Load()
	if err != nil && !m.faulty && !full && !errors.Is(err, faultfs.ErrOff) {
		c.wrong("%s has ended with a disk that did what it should: %v", m.name, err)
	}
	m.faulty = false
	m.kill(false, nil) // its file system may have failed
	err = m.start()
	if errors.Is(err, syscall.ENOSPC) { // an operator who gives it another program or disk makes room
		m.disk.fs.SetCapacity(0)
		err = m.start()
	}
	if err != nil {
		c.wrong("%s does not start: %v", m.name, err)
	}
}
