//go:build proof

package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	peerwire "trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// identified is a certificate of an authority, as flags of a member and for a client.
type identified struct {
	flags []string
	*peerwire.Credentials
}

func identify(t testing.TB, a *wiretest.Authority, hosts ...string) identified {
	t.Helper()
	f := a.Issue(time.Now().Add(time.Hour), hosts...)
	c, err := peerwire.LoadTLS(f.Cert, f.Key, a.File, slog.New(slog.DiscardHandler))
	servertest.NoError(t, err)
	return identified{[]string{"--cluster-cert=" + f.Cert, "--cluster-key=" + f.Key, "--cluster-ca=" + a.File}, c}
}

// askAs sends a control request with a certificate, and again if the connection ends before an answer: a second for its
// start is short on a machine that does much else. A stream is thrown away.
func askAs(n *clustertest.Member, by identified, request string) error {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	for {
		_, err := peerwire.Fetch(ctx, peerwire.ClientConfig{TLS: by.Credentials}, n.Door.Addr(), []byte(request), io.Discard)
		if refused := (*peerwire.RemoteError)(nil); err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestWhatACertificateOfTheAuthorityMayAskFor(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 1, func(t testing.TB, w *clustertest.Cluster) {
		a := wiretest.NewAuthority(t, "shared")
		members, ops := identify(t, a, "127.0.0.1"), identify(t, a, "ops.example")
		n := w.Nodes[0]
		n.Args = members.flags
		changes := []string{
			`{"op":"backup"}`, `{"op":"transfer"}`, `{"op":"remove","node":"n1"}`, `{"op":"add","node":"n2=127.0.0.1:1"}`,
			`{"op":"invite"}`, `{"op":"propose"}`,
		}
		refused := func(by identified, why string) {
			t.Helper()
			if err := askAs(n, by, `{"op":"status"}`); err != nil {
				t.Error(err)
			}
			for _, request := range changes {
				if err := askAs(n, by, request); err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: %v, want %q", request, err, why)
				}
			}
		}
		n.Start("--cluster=" + w.List)
		w.Leader()
		if err := askAs(n, members, `{"op":"backup"}`); err != nil {
			t.Errorf("one certificate for all: %v", err)
		}
		refused(ops, "the certificate of ops.example is")
		if err := askAs(n, ops, `{"op":"backup"}`); err == nil || !strings.Contains(err.Error(), "start the members with --cluster-admin-name ops.example") {
			t.Error(err)
		}
		n.Process.Signal(syscall.SIGTERM)
		n.Process.Wait()
		n.Start("--cluster="+w.List, "--cluster-admin-name=ops*")
		w.Leader()
		if err := askAs(n, ops, `{"op":"backup"}`); err != nil {
			t.Errorf("an administrator: %v", err)
		}
		if err := askAs(n, members, `{"op":"backup"}`); err == nil || !strings.Contains(err.Error(), "no administrator's") {
			t.Errorf("a member, while administrators are named: %v", err)
		}
	})
}

// A member that was away hears of a leader that was added meanwhile, at a host that it does not
// know, from the others. Nothing but its certificate says who the leader is.
func TestALeaderThatWasAddedAtAnotherHostIsTakenByAMemberThatWasAway(t *testing.T) {
	t.Parallel()
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		a := wiretest.NewAuthority(t, "cluster")
		members := identify(t, a, "127.0.0.1")
		for _, n := range w.Nodes {
			n.Args = members.flags
			n.Start("--cluster=" + w.List)
		}
		l := w.Leader()
		away := w.Nodes[slices.IndexFunc(w.Nodes, func(n *clustertest.Member) bool { return n != l })]
		away.Kill()
		added := w.Grow()
		added.Door = clustertest.NewDoorOn(t, "127.0.0.4")
		added.Args = identify(t, a, "127.0.0.4").flags
		added.Start("--cluster=" + listOf(w.Nodes...))
		lead := func(request string) {
			w.Eventually(request, func() bool { return askAs(w.Leader(), members, request) == nil })
		}
		lead(`{"op":"add","node":"` + listOf(added) + `"}`)
		lead(`{"op":"transfer","to":"` + added.Name + `"}`)
		w.Eventually("the new node leads", func() bool { return w.Leader() == added })
		away.Start("--cluster=" + w.List)
		w.Eventually("it follows", func() bool {
			_, text := away.Leaderz()
			return strings.HasPrefix(text, "standby, leader is "+added.Name)
		})
	})
}
