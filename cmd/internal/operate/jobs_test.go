package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"trellis/cmd/internal/client"
	"trellis/engine"
	"trellis/reactor"
)

// A rig is a server, and a connection to it.
type rig struct {
	*client.Conn
	t *testing.T
}

// onBoth runs a test on a server with extensions and on one without.
func onBoth(t *testing.T, test func(t *testing.T, r *rig, stock bool)) {
	for _, stock := range []bool{false, true} {
		t.Run(fmt.Sprintf("stock=%v", stock), func(t *testing.T) {
			start := time.Now()
			server, err := reactor.New(reactor.Config{
				Engine: engine.New(engine.Config{
					MaxJobSize: 65535, Start: start,
					Info: engine.Info{Usage: func() (u, s time.Duration) { return 0, 0 }},
				}),
				Now: func() engine.Time { return engine.Time(time.Since(start)) }, Loops: 1, MaxJobSize: 65535, Extensions: !stock,
				Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
			dial := func() *client.Conn {
				nc, err := server.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				c := client.New(nc, "the server")
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			r := &rig{dial(), t}
			holder := &rig{dial(), t}
			// 1 and 2 are ready, 3 is delayed, 4 buried, and 5 reserved by somebody else.
			for i, delay := range []uint32{0, 0, 600, 0, 0} {
				r.put("a", uint32(10+i), delay)
			}
			r.must(r.ReserveJob(t.Context(), 4))
			if err := r.Bury(t.Context(), 4, 13); err != nil {
				t.Fatal(err)
			}
			holder.must(holder.ReserveJob(t.Context(), 5))
			test(t, r, stock)
		})
	}
}

func (r *rig) must(_ client.Job, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) put(tube string, pri, delay uint32) {
	r.t.Helper()
	if err := r.Use(r.t.Context(), tube); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Put(r.t.Context(), &client.NewJob{Pri: pri, Delay: delay, TTR: 600, Body: []byte("x")}); err != nil {
		r.t.Fatal(err)
	}
}

// want makes sure of an outcome, and of the jobs of a tube by their states.
func (r *rig) want(o Outcome, err error, done uint64, missing []uint64, tube string, counts Counts) {
	r.t.Helper()
	if err != nil || o.Done != done || !slices.Equal(o.Missing, missing) {
		r.t.Errorf("done %d, missing %v, %v; want %d and %v", o.Done, o.Missing, err, done, missing)
	}
	f, err := r.StatsTube(r.t.Context(), tube)
	n := CountsOf(f)
	if got := (Counts{Ready: n.Ready, Reserved: n.Reserved, Delayed: n.Delayed, Buried: n.Buried, Waiting: n.Waiting}); err != nil || got != counts {
		r.t.Errorf("tube %s has %+v, %v; want %+v", tube, got, err, counts)
	}
}

var everyID = []uint64{1, 2, 3, 4, 5, 99}

func ids(all ...uint64) *Jobs { return &Jobs{IDs: all} }

func TestJobsAreKicked(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig, _ bool) {
		o, err := Kick(t.Context(), r.Conn, ids(everyID...))
		r.want(o, err, 2, []uint64{1, 2, 5, 99}, "a", Counts{Ready: 4, Reserved: 1})
	})
	onBoth(t, func(t *testing.T, r *rig, _ bool) {
		j := &Jobs{Tube: "a", Most: 10}
		o, err := Kick(t.Context(), r.Conn, j)
		r.want(o, err, 1, nil, "a", Counts{Ready: 3, Reserved: 1, Delayed: 1})
		if j.State != client.Buried {
			t.Errorf("%s jobs were chosen", j.State)
		}
		o, err = Kick(t.Context(), r.Conn, &Jobs{Tube: "a", State: client.Delayed, Most: 10})
		r.want(o, err, 1, nil, "a", Counts{Ready: 4, Reserved: 1})
	})
}

func TestJobsAreBuried(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig, _ bool) {
		o, err := Bury(t.Context(), r.Conn, ids(everyID...))
		r.want(o, err, 4, []uint64{5, 99}, "a", Counts{Buried: 4, Reserved: 1})
		for id := uint64(1); id < 5; id++ {
			f, err := r.StatsJob(t.Context(), id)
			if err != nil || f.Uint("pri") != 9+id || f.Uint("buries") != 1 || f.Uint("reserves") != 1 {
				t.Errorf("job %d: %v, %v", id, f, err)
			}
		}
	})
	onBoth(t, func(t *testing.T, r *rig, _ bool) {
		o, err := Bury(t.Context(), r.Conn, &Jobs{Tube: "a", State: client.Ready, Most: 1})
		r.want(o, err, 1, nil, "a", Counts{Ready: 1, Reserved: 1, Delayed: 1, Buried: 2})
		if f, err := r.StatsJob(t.Context(), 1); err != nil || f.Text("state") != "buried" || f.Uint("pri") != 10 {
			t.Errorf("%v, %v", f, err)
		}
	})
}

func TestJobsAreDeleted(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig, stock bool) {
		o, err := Delete(t.Context(), r.Conn, ids(everyID...))
		r.want(o, err, 4, []uint64{5, 99}, "a", Counts{Reserved: 1})
		o, err = Delete(t.Context(), r.Conn, &Jobs{Tube: "a", State: client.Reserved, Most: 9})
		if stock {
			if lacks := (*client.LacksError)(nil); !errors.As(err, &lacks) {
				t.Error(err)
			}
			return
		}
		r.want(o, err, 1, nil, "a", Counts{})
	})
	onBoth(t, func(t *testing.T, r *rig, _ bool) {
		o, err := Delete(t.Context(), r.Conn, &Jobs{Tube: "a", State: client.Ready, Most: 9})
		r.want(o, err, 2, nil, "a", Counts{Reserved: 1, Delayed: 1, Buried: 1})
		if _, err = Delete(t.Context(), r.Conn, &Jobs{Tube: "none", State: client.Ready, Most: 9}); !errors.Is(err, client.ErrNotFound) || err.Error() != `there is no tube "none"` {
			t.Error(err)
		}
	})
}

func TestJobsAreMoved(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig, stock bool) {
		o, err := Move(t.Context(), r.Conn, ids(everyID...), "b")
		if stock {
			if lacks := (*client.LacksError)(nil); !errors.As(err, &lacks) {
				t.Error(err)
			}
			return
		}
		r.want(o, err, 4, []uint64{5, 99}, "b", Counts{Ready: 2, Delayed: 1, Buried: 1})
		o, err = Move(t.Context(), r.Conn, &Jobs{Tube: "b", State: client.Ready, Most: 1}, "a")
		r.want(o, err, 1, nil, "a", Counts{Ready: 1, Reserved: 1})
	})
}

func TestJobsAreCopied(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig, stock bool) {
		o, err := Copy(t.Context(), r.Conn, ids(everyID...), "b")
		r.want(o, err, 5, []uint64{99}, "b", Counts{Ready: 4, Delayed: 1})
		o, err = Copy(t.Context(), r.Conn, &Jobs{Tube: "a", State: client.Buried, Most: 1}, "c")
		r.want(o, err, 1, nil, "c", Counts{Ready: 1})
		o, err = Copy(t.Context(), r.Conn, &Jobs{Tube: "b", State: client.Ready, Most: 3}, "b")
		if stock {
			if lacks := (*client.LacksError)(nil); !errors.As(err, &lacks) {
				t.Error(err)
			}
			return
		}
		r.want(o, err, 3, nil, "b", Counts{Ready: 7, Delayed: 1})
	})
}
