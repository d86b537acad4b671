package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/shard"
)

// A plant is an engine under load: its clock goes on by a microsecond with every
// command, and its alarms are never met, since every command does what is due.
type plant struct {
	tb     testing.TB
	engine *Engine
	loops  []*plantLoop
}

type plantLoop struct {
	*Loop
	now Time
	_   [128]byte // loops share no cache line
}

func (l *plantLoop) Wake()      {}
func (l *plantLoop) Alarm(Time) {}

// A plantClient is a connection that takes commands as the decoder gives them.
type plantClient struct {
	session  Session // the first field: see pull
	tb       testing.TB
	loop     *plantLoop
	out      Output
	reserved []uint64
	_        [128]byte
}

func newPlant(tb testing.TB, loops int) *plant {
	return newPlantOf(tb, loops, Config{})
}

func newPlantOf(tb testing.TB, loops int, cfg Config) *plant {
	cfg.MaxJobSize = 1 << 16
	p := &plant{tb: tb, engine: New(cfg)}
	for range loops {
		l := new(plantLoop)
		l.Loop = p.engine.NewLoop(l)
		p.loops = append(p.loops, l)
	}
	return p
}

func (p *plant) client(loop int) *plantClient {
	c := &plantClient{tb: p.tb, loop: p.loops[loop]}
	c.loop.Open(&c.session, c.loop.now)
	return c
}

func (c *plantClient) do(cmd *codec.Command) Outcome {
	c.loop.now += 1000
	c.out.Buf = c.out.Buf[:0]
	cmd.CountAs = cmd.Op
	return c.session.Execute(c.loop.now, cmd, &c.out)
}

// pull begins a round and resumes who can go on.
func (l *plantLoop) pull(now Time) {
	l.Refill()
	for s := l.Next(now); s != nil; s = l.Next(now) {
		c := (*plantClient)(unsafe.Pointer(s))
		c.session.Resume(now, &c.out)
	}
}

// must does a command that is to be answered in a certain way.
func (c *plantClient) must(cmd *codec.Command, want string) {
	if c.do(cmd); !bytes.HasPrefix(c.out.Buf, []byte(want)) {
		c.tb.Fatalf("%v %d: %q, want %s", cmd.Op, cmd.ID, c.out.Buf, want)
	}
}

var smallBody = bytes.Repeat([]byte("x"), 100)

func (c *plantClient) putNext(pri, delay uint32) {
	c.must(&codec.Command{
		Op: codec.OpPut, Pri: pri, Delay: delay, TTR: 1e9,
		Size: uint32(len(smallBody)), Body: smallBody, Terminated: true,
	}, "INSERTED ")
}

// put puts a job, in a batch of its own, and returns its id.
func (c *plantClient) put(pri, delay uint32) uint64 {
	c.putNext(pri, delay)
	c.loop.tx.EndRound()
	return c.replyID()
}

func (c *plantClient) reserve() uint64 {
	c.must(&codec.Command{Op: codec.OpReserve}, "RESERVED")
	return c.replyID()
}

// replyID reads the id in RESERVED or INSERTED.
func (c *plantClient) replyID() (id uint64) {
	for _, d := range c.out.Buf[len("RESERVED "):] {
		if d < '0' {
			break
		}
		id = id*10 + uint64(d-'0')
	}
	return id
}

func (c *plantClient) reserveJob(id uint64) {
	c.must(&codec.Command{Op: codec.OpReserveJob, ID: id}, "RESERVED")
}

func (c *plantClient) delete(id uint64) {
	c.must(&codec.Command{Op: codec.OpDelete, ID: id}, "DELETED")
}

func (c *plantClient) release(id uint64, pri, delay uint32) {
	c.must(&codec.Command{Op: codec.OpRelease, ID: id, Pri: pri, Delay: delay}, "RELEASED")
}

func (c *plantClient) touch(id uint64) { c.must(&codec.Command{Op: codec.OpTouch, ID: id}, "TOUCHED") }

func (c *plantClient) bury(id uint64) { c.must(&codec.Command{Op: codec.OpBury, ID: id}, "BURIED") }

func (c *plantClient) kickJob(id uint64) {
	c.must(&codec.Command{Op: codec.OpKickJob, ID: id}, "KICKED")
}

func (c *plantClient) cycle(pri uint32) {
	c.put(pri, 0)
	c.delete(c.reserve())
}

const benchRound = 10_000

// inRounds measures op, which uses up what prepare has made for benchRound of
// them.
func inRounds(b *testing.B, prepare, finish func(), op func(i int)) {
	b.Helper()
	b.ReportAllocs()
	i := benchRound
	for b.Loop() {
		if i == benchRound {
			b.StopTimer()
			finish()
			prepare()
			i = 0
			b.StartTimer()
		}
		op(i)
		i++
	}
}

func BenchmarkPut(b *testing.B) {
	c := newPlant(b, 1).client(0)
	var ids []uint64
	deleteAll := func() {
		for _, id := range ids {
			c.delete(id)
		}
		ids = ids[:0]
	}
	inRounds(b, func() {}, deleteAll, func(int) { ids = append(ids, c.put(0, 0)) })
}

// BenchmarkOnReserved measures what can be done with a reserved job, one of
// benchRound that the session holds.
func BenchmarkOnReserved(b *testing.B) {
	for _, x := range []struct {
		name string
		op   func(c *plantClient, id uint64)
		undo func(c *plantClient, id uint64)
	}{
		{"delete", (*plantClient).delete, nil},
		{"release", func(c *plantClient, id uint64) { c.release(id, 0, 0) }, (*plantClient).delete},
		{"release with delay", func(c *plantClient, id uint64) { c.release(id, 0, uint32(id%1000)+1) }, (*plantClient).delete},
		{"touch", (*plantClient).touch, (*plantClient).delete},
		{"bury", (*plantClient).bury, (*plantClient).delete},
	} {
		b.Run(x.name, func(b *testing.B) {
			c := newPlant(b, 1).client(0)
			var ids []uint64
			prepare := func() {
				for range benchRound {
					ids = append(ids, c.put(0, 0))
					c.reserveJob(ids[len(ids)-1])
				}
			}
			finish := func() {
				for _, id := range ids {
					if x.undo != nil {
						x.undo(c, id)
					}
				}
				ids = ids[:0]
			}
			inRounds(b, prepare, finish, func(i int) { x.op(c, ids[i]) })
		})
	}
}

// BenchmarkOnQueued measures what can be done with jobs in a queue.
func BenchmarkOnQueued(b *testing.B) {
	for _, x := range []struct {
		name string
		bury bool
		op   func(c *plantClient, id uint64)
	}{
		{"reserve", false, func(c *plantClient, _ uint64) { c.reserve() }},
		{"reserve-job", false, (*plantClient).reserveJob},
		{"kick", true, func(c *plantClient, _ uint64) { c.must(&codec.Command{Op: codec.OpKick, Bound: 1}, "KICKED 1") }},
		{"kick-job", true, (*plantClient).kickJob},
	} {
		b.Run(x.name, func(b *testing.B) {
			c := newPlant(b, 1).client(0)
			var ids []uint64
			prepare := func() {
				for range benchRound {
					ids = append(ids, c.put(0, 0))
				}
				for _, id := range ids {
					if x.bury {
						c.reserveJob(id)
						c.bury(id)
					}
				}
			}
			finish := func() {
				for _, id := range ids {
					c.delete(id)
				}
				ids = ids[:0]
			}
			inRounds(b, prepare, finish, func(i int) { x.op(c, ids[i]) })
		})
	}
}

func BenchmarkUse(b *testing.B) {
	p := newPlant(b, 1)
	c, keeper := p.client(0), p.client(0)
	cmds := []*codec.Command{{Op: codec.OpUse, Tube: []byte("a")}, {Op: codec.OpUse, Tube: []byte("b")}}
	for _, cmd := range cmds {
		keeper.must(&codec.Command{Op: codec.OpWatch, Weight: 1, Tube: cmd.Tube}, "WATCHING")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.do(cmds[i&1])
	}
}

func BenchmarkWatchAndIgnore(b *testing.B) {
	p := newPlant(b, 1)
	c, keeper := p.client(0), p.client(0)
	keeper.must(&codec.Command{Op: codec.OpUse, Tube: []byte("a")}, "USING")
	watch := &codec.Command{Op: codec.OpWatch, Weight: 1, Tube: []byte("a")}
	ignore := &codec.Command{Op: codec.OpIgnore, Tube: []byte("a")}
	b.ReportAllocs()
	for b.Loop() {
		c.do(watch)
		c.do(ignore)
	}
}

func BenchmarkCycle(b *testing.B) {
	const many = 1_000_000
	for _, x := range []struct {
		name        string
		jobs, tubes int
		settings    bool // of the tubes
		pri         func() uint32
	}{
		{"empty tube", 0, 0, false, func() uint32 { return 0 }},
		{"1e6 ready of one priority", many, 0, false, func() uint32 { return 0 }},
		{"1e6 ready of 100 priorities", many, 0, false, func() uint32 { return rand.Uint32N(100) }},
		{"1e6 ready of random priorities", many, 0, false, rand.Uint32},
		{"10000 further tubes", 0, 10_000, false, func() uint32 { return 0 }},
		{"10000 further tubes with settings", 0, 10_000, true, func() uint32 { return 0 }},
	} {
		b.Run(x.name, func(b *testing.B) {
			p := newPlant(b, 1)
			c := p.client(0)
			for i := range x.tubes {
				other, tube := p.client(0), fmt.Sprint("tube", i)
				other.must(&codec.Command{Op: codec.OpUse, Tube: []byte(tube)}, "USING")
				other.put(0, 0)
				if x.settings {
					other.set(tube, "dead", codec.KeyRate, 1)
				}
			}
			for range x.jobs {
				c.put(x.pri(), 0)
			}
			b.ReportAllocs()
			for b.Loop() {
				c.cycle(x.pri())
			}
			b.StopTimer()
			p.engine.Discard()
		})
	}
}

func BenchmarkPutAmongDelayed(b *testing.B) {
	p := newPlant(b, 1)
	c := p.client(0)
	for range 1_000_000 {
		c.put(0, 1e6+rand.Uint32N(1e8))
	}
	var ids []uint64
	inRounds(b, func() {}, func() {
		for _, id := range ids {
			c.delete(id)
		}
		ids = ids[:0]
	}, func(int) { ids = append(ids, c.put(0, 1e6+rand.Uint32N(1e8))) })
	b.StopTimer()
	p.engine.Discard()
}

// BenchmarkHandOver measures a put for a session that waits, until it has the job,
// deletes it and waits again.
func BenchmarkHandOver(b *testing.B) {
	for _, x := range []struct {
		name          string
		loops, worker int
		waiting       int // others, in other tubes
	}{
		{"same loop", 1, 0, 0},
		{"another loop", 2, 1, 0},
		{"10000 waiting elsewhere", 1, 0, 10_000},
	} {
		b.Run(x.name, func(b *testing.B) {
			p := newPlant(b, x.loops)
			for i := range x.waiting {
				other := p.client(0)
				other.must(&codec.Command{Op: codec.OpWatch, Weight: 1, Tube: []byte(fmt.Sprint("tube", i))}, "WATCHING")
				other.must(&codec.Command{Op: codec.OpIgnore, Tube: []byte(shard.DefaultTube)}, "WATCHING")
				other.do(&codec.Command{Op: codec.OpReserveWithTimeout, Timeout: 1e9})
			}
			producer, worker := p.client(0), p.client(x.worker)
			reserve := &codec.Command{Op: codec.OpReserveWithTimeout, Timeout: 1e9}
			b.ReportAllocs()
			for b.Loop() {
				if worker.do(reserve) != Wait {
					b.Fatalf("%q", worker.out.Buf)
				}
				producer.put(0, 0)
				worker.loop.pull(producer.loop.now)
				worker.delete(worker.replyID())
			}
		})
	}
}

// BenchmarkParallelCycle is put, reserve and delete on several goroutines, each with
// a loop, and tells how long they waited for locks. A batch is what the reactor does
// after one read: commands of one kind, then Next. The ceiling is what the machine
// can do: engines that share nothing.
func BenchmarkParallelCycle(b *testing.B) {
	for _, batch := range []int{1, 32} {
		for _, x := range []struct {
			name    string
			loops   int
			engines int
			shards  int   // in which their tubes lie; 0 for one tube
			memory  int64 // the limit, never reached
		}{
			{name: "alone", loops: 1, engines: 1, shards: 1},
			{name: "2 shards/goroutines=2", loops: 2, engines: 1, shards: 2},
			{name: "2 shards and a limit/goroutines=2", loops: 2, engines: 1, shards: 2, memory: 1 << 40},
			{name: "2 engines/goroutines=2", loops: 2, engines: 2, shards: 1},
			{name: "one tube/goroutines=2", loops: 2, engines: 1},
			{name: "8 shards/goroutines=8", loops: 8, engines: 1, shards: 8},
			{name: "one tube/goroutines=8", loops: 8, engines: 1},
		} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, x.name), func(b *testing.B) {
				var clients []*plantClient
				for range x.engines {
					p := newPlantOf(b, x.loops/x.engines, Config{Limits: Limits{Memory: x.memory}})
					for n := range p.loops {
						c := p.client(n)
						if x.shards > 0 {
							tube := p.tubeIn(n % x.shards)
							c.do(&codec.Command{Op: codec.OpUse, Tube: tube})
							c.do(&codec.Command{Op: codec.OpWatch, Weight: 1, Tube: tube})
							c.do(&codec.Command{Op: codec.OpIgnore, Tube: []byte(shard.DefaultTube)})
						}
						clients = append(clients, c)
					}
				}
				var running sync.WaitGroup
				b.ReportAllocs()
				waited := lockWait()
				b.ResetTimer()
				for n, c := range clients {
					cycles := b.N / len(clients)
					if n < b.N%len(clients) {
						cycles++
					}
					running.Go(func() {
						for ; cycles > 0; cycles -= batch {
							c.cycles(min(batch, cycles))
						}
					})
				}
				running.Wait()
				b.StopTimer()
				b.ReportMetric(float64(lockWait()-waited)/float64(b.N), "lock-wait-ns/op")
			})
		}
	}
}

// tubeIn returns the name of a tube in a shard: a delay of a job there ends when the shard meets its deadlines.
func (p *plant) tubeIn(shard int) []byte {
	c := p.client(0)
	by := &c.loop.tx
	for i := 0; ; i++ {
		name := fmt.Append(nil, "tube", i)
		c.must(&codec.Command{Op: codec.OpUse, Tube: name}, "USING")
		id := c.put(0, 1)
		now := c.loop.now
		c.loop.now += 2 * clock.Second
		by.MeetDeadlines(shard, c.loop.now)
		there := p.engine.Snapshot(now).Ready > 0 // what is due elsewhere is not yet
		c.delete(id)
		if there {
			c.session.Close(c.loop.now)
			return name
		}
	}
}

// cycles puts n jobs in one batch, reserves them in another and deletes them in a
// third.
func (c *plantClient) cycles(n int) {
	for range n {
		c.putNext(0, 0)
	}
	c.loop.pull(c.loop.now)
	c.reserved = c.reserved[:0]
	for range n {
		c.reserved = append(c.reserved, c.reserve())
	}
	c.loop.pull(c.loop.now)
	for _, id := range c.reserved {
		c.delete(id)
	}
	c.loop.pull(c.loop.now)
}

// lockWait is how long all goroutines have waited for mutexes.
func lockWait() time.Duration {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return time.Duration(s[0].Value.Float64() * 1e9)
}

// BenchmarkDeleteAmongReservations deletes one of 50,000 jobs that the session
// holds, and reserves another.
func BenchmarkDeleteAmongReservations(b *testing.B) {
	c := newPlant(b, 1).client(0)
	var held []uint64
	for range 50_000 {
		c.put(0, 0)
		held = append(held, c.reserve())
	}
	b.ReportAllocs()
	for b.Loop() {
		i := rand.IntN(len(held))
		c.delete(held[i])
		c.put(0, 0)
		held[i] = c.reserve()
	}
}

// BenchmarkPipelinedCycle is what a loop does with 32 commands to a read: puts of
// 100 bytes, reserves, deletes, from bytes to bytes. It measures one of each.
func BenchmarkPipelinedCycle(b *testing.B) {
	const batch = 32
	c := newPlant(b, 1).client(0)
	var decoder codec.Decoder
	decoder.MaxJobSize = 1 << 16
	feed := func(p []byte) {
		var cmd codec.Command
		c.out.Buf = c.out.Buf[:0]
		c.loop.now += 10_000
		for {
			n, ok := decoder.Next(p, &cmd)
			if !ok {
				break
			}
			p = p[n:]
			c.session.Execute(c.loop.now, &cmd, &c.out)
		}
		c.loop.pull(c.loop.now)
	}
	puts := bytes.Repeat(fmt.Appendf(nil, "put 0 0 60 %d\r\n%s\r\n", len(smallBody), smallBody), batch)
	reserves := bytes.Repeat([]byte("reserve\r\n"), batch)
	var deletes []byte
	id := uint64(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%batch != 0 {
			continue
		}
		feed(puts)
		feed(reserves)
		deletes = deletes[:0]
		for range batch {
			id++
			deletes = append(strconv.AppendUint(append(deletes, "delete "...), id, 10), "\r\n"...)
		}
		feed(deletes)
		if len(c.out.Buf) != batch*len(codec.ReplyDeleted) {
			b.Fatalf("%q", c.out.Buf)
		}
	}
}
