package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/binlog"
	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/cmd/trellisd/internal/access"
	"trellis/cmd/trellisd/internal/audit"
	"trellis/cmd/trellisd/internal/reload"
	"trellis/codec"
	"trellis/engine"
	"trellis/engine/account"
	"trellis/reactor"
)

// rig is an engine with clients, under a clock that stands still unless told.
type rig struct {
	t      testing.TB
	now    engine.Time
	engine *engine.Engine
	loop   *engine.Loop
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, now: engine.Time(time.Hour)}
	accounts := new(account.Accounts)
	accounts.Set([]account.Tubes{{Account: account.New("acme", account.Limits{Jobs: 9, Rate: 5000}), Tubes: []string{"mail*"}}})
	r.engine = engine.New(engine.Config{
		MaxJobSize: 65535, Accounts: accounts,
		Info: engine.Info{Usage: r.usage},
	})
	r.loop = r.engine.NewLoop(silentWaker{})
	return r
}

func (r *rig) usage() (user, system time.Duration) {
	return 1500 * time.Millisecond, 250 * time.Millisecond
}

// silentWaker need not wake: everything is on one goroutine, and Next is
// called after every command.
type silentWaker struct{}

func (silentWaker) Wake()             {}
func (silentWaker) Alarm(engine.Time) {}

func (r *rig) sources() Sources {
	return Sources{
		Serving:     func() *Serving { return r.serving(&fakeReactor{}) },
		MaxJobSize:  65535,
		SegmentSize: 10 << 20,
		Build:       Build{Version: "1.2.3", Revision: "0123456789ab", Date: "2024-02-29"},
		Usage:       r.usage,
	}
}

func (r *rig) serving(re Reactor) *Serving {
	return &Serving{Engine: r.engine, Now: func() engine.Time { return r.now }, Reactor: re}
}

type fakeReactor struct {
	stats      reactor.Stats
	latency    reactor.Latency
	handshakes reactor.HandshakeStats
}

func (r *fakeReactor) Stats() reactor.Stats      { return r.stats }
func (r *fakeReactor) Latency() *reactor.Latency { return &r.latency }

func (r *fakeReactor) Handshakes() *reactor.HandshakeStats { return &r.handshakes }

// wholeSources has something to tell about every part of the server.
func (r *rig) wholeSources() Sources {
	src := r.sources()
	src.Serving = func() *Serving {
		f := &fakeReactor{stats: reactor.Stats{
			Loops:    []reactor.LoopStats{{Connections: 3, Ending: 1, BytesIn: 10, OverLimit: 1, Lacking: 1, Contact: -1}, {Connections: 4, BytesOut: 20, OverLimit: 2, Unknown: 4, Misfits: 1, Resumed: 6, NoContact: 2, Unrepeated: 3, Lags: 5, Repeated: 7, Attaches: 2, TrunkIn: 30, TrunkOut: 40, Apart: 90 * time.Millisecond, Contact: 300 * time.Millisecond}},
			Channels: 2,
			AcceptStats: reactor.AcceptStats{
				Accepted: 7, Refused: 1, RefusedOver: 2, MaxConnections: 1000,
				Listeners: []reactor.ListenerStats{
					{Addr: "127.0.0.1:11300", Connections: 1, Accepted: 4},
					{Addr: "127.0.0.1:11300", Connections: 2, Accepted: 1}, // inherited
					{Addr: "127.0.0.1:11400", TLS: true, Connections: 4, Accepted: 2},
				},
			},
		}}
		f.handshakes.Pending = 3
		f.handshakes.Took[reactor.HandshakeOK].Observe(2*time.Millisecond, 2)
		f.handshakes.Took[reactor.HandshakeTimeout].Observe(10*time.Second, 1)
		f.latency.Answered[codec.OpPut].Observe(30*time.Microsecond, 5)
		f.latency.Waited[codec.OpReserve].Observe(7*time.Second, 1)
		return r.serving(f)
	}
	src.Certificates = func() Certificates {
		return Certificates{
			Expires: time.Unix(1_800_000_000, 0), ClientCAExpires: time.Unix(1_900_000_000, 0),
			Reload: reload.Stats{What: "certificates", Loaded: 5, Failed: 2, Failing: true},
		}
	}
	src.Limits = engine.Limits{Memory: 1 << 30, Bodies: 1 << 28, Tubes: 5000, Keys: 9000}
	src.Cluster = func() *Cluster {
		n1, n2 := member.Member{ID: 1, Name: "n1"}, member.Member{ID: 2, Name: "n2"}
		return &Cluster{Leaderships: 3, Gone: 2, Contradictions: 1, Ready: true, Status: replica.Status{
			Self: 1, Leader: 1, Leads: true, Serves: true, Term: 7, Commit: 99, Applied: 98, Last: 100,
			Snapshot: 50, SnapshotBytes: 5000, LogBytes: 10000, Stamp: 1_700_000_090e9, SnapshotStamp: 1_700_000_000e9,
			SnapshotTook: 1500 * time.Millisecond, Free: 1 << 30, Uncommitted: 50 * time.Millisecond,
			Elections: 4, Depositions: 2, ReadRounds: 77,
			Members: []replica.MemberStatus{
				{Member: n1, Voter: true, Alive: true, Match: 100}, {Member: n2, Voter: true, Match: 60, Behind: 4000},
			},
		}}
	}
	src.Bodies = func() *Bodies {
		b := &Bodies{
			Memory: 50e6, Limit: 64e6, Evicted: 3e9, Unreadable: 5, Stuck: 6, Unindexed: 7,
			ColdJobs: 8, ColdBytes: 9e9, Waits: 10, Late: 11, PutWaits: 12,
			Files: &BodyFiles{Spilled: 13e6, Bytes: 14e6},
		}
		for l := range b.Reads {
			b.Reads[l].Bodies, b.Reads[l].Bytes, b.Reads[l].Took = uint64(l+1), uint64(l+1)*1000, time.Duration(l+1)*time.Second
		}
		return b
	}
	src.Binlog = func() *binlog.Stats {
		return &binlog.Stats{
			Segments: 2, OldestSegment: 4, CurrentSegment: 5, UsedBytes: 1000, LiveBytes: 300,
			Written: 18, Migrated: 2,
		}
	}
	src.Audit = func() audit.Stats { return audit.Stats{Denied: 4, Unreported: 5, Lost: 6} }
	src.Access = func() access.Stats {
		return access.Stats{Authenticated: 9, BadToken: 1, NoToken: 2, Silent: 3}
	}
	src.Reloads = []func() reload.Stats{func() reload.Stats { return reload.Stats{What: "auth-file", Loaded: 2, Failed: 1, Failing: true} }}
	src.Stores = NewStores()
	src.Stores.Stored(time.Millisecond)
	src.Stores.Committed(2 * time.Millisecond)
	src.Commits = NewCommits()
	src.Commits.Committed(3, 400, time.Millisecond)
	src.Commits.Synced(2 * time.Millisecond)
	return src
}

// allTubes is a limit that no test reaches.
const allTubes = 100_000

// pedantic makes a registry that objects to whatever is not quite as it should be.
func pedantic(src Sources, opt Options) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	register(r, src, opt)
	return r
}

// client is a connection.
type client struct {
	rig     *rig
	session engine.Session
	decoder codec.Decoder
}

func (r *rig) dial() *client {
	c := &client{rig: r, decoder: codec.Decoder{MaxJobSize: 65535, Extensions: true}}
	r.loop.Open(&c.session, r.now)
	return c
}

// do executes commands and returns their replies.
func (c *client) do(lines string) string {
	c.rig.t.Helper()
	var out engine.Output
	var cmd codec.Command
	for p := []byte(lines); len(p) > 0; {
		n, ok := c.decoder.Next(p, &cmd)
		p = p[n:]
		if ok {
			c.session.Execute(c.rig.now, &cmd, &out)
			c.rig.loop.Refill()
			for c.rig.loop.Next(c.rig.now) != nil {
			}
		}
	}
	return string(out.Buf)
}

// put puts a job of two bytes into a tube.
func (c *client) put(tube, pri, delay string) {
	c.do("use " + tube + "\r\nput " + pri + " " + delay + " 60 2\r\nhi\r\n")
}
