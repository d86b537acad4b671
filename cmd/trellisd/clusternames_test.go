//go:build proof

package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	peerwire "trellis/binlog/replica/wire"
	"trellis/binlog/replica/wire/wiretest"
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
	no(t, err)
	return identified{[]string{"--cluster-cert=" + f.Cert, "--cluster-key=" + f.Key, "--cluster-ca=" + a.File}, c}
}

// askAs sends a control request with a certificate. A stream is thrown away.
func (n *townsman) askAs(by identified, request string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := peerwire.Fetch(ctx, peerwire.ClientConfig{TLS: by.Credentials}, n.door.addr(), []byte(request), io.Discard)
	return err
}

func TestWhatACertificateOfTheAuthorityMayAskFor(t *testing.T) {
	t.Parallel()
	undisturbed(t, 1, func(t testing.TB, w *town) {
		a := wiretest.NewAuthority(t, "shared")
		members, ops := identify(t, a, "127.0.0.1"), identify(t, a, "ops.example")
		n := w.nodes[0]
		n.args = members.flags
		changes := []string{
			`{"op":"backup"}`, `{"op":"transfer"}`, `{"op":"remove","node":"n1"}`, `{"op":"add","node":"n2=127.0.0.1:1"}`,
			`{"op":"invite"}`, `{"op":"propose"}`,
		}
		refused := func(by identified, why string) {
			t.Helper()
			if err := n.askAs(by, `{"op":"status"}`); err != nil {
				t.Error(err)
			}
			for _, request := range changes {
				if err := n.askAs(by, request); err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: %v, want %q", request, err, why)
				}
			}
		}
		n.start("--cluster=" + w.list)
		w.leader()
		if err := n.askAs(members, `{"op":"backup"}`); err != nil {
			t.Errorf("one certificate for all: %v", err)
		}
		refused(ops, "the certificate of ops.example is")
		if err := n.askAs(ops, `{"op":"backup"}`); err == nil || !strings.Contains(err.Error(), "start the members with --cluster-admin-name ops.example") {
			t.Error(err)
		}
		n.p.signal(syscall.SIGTERM)
		n.p.wait()
		n.start("--cluster="+w.list, "--cluster-admin-name=ops*")
		w.leader()
		if err := n.askAs(ops, `{"op":"backup"}`); err != nil {
			t.Errorf("an administrator: %v", err)
		}
		if err := n.askAs(members, `{"op":"backup"}`); err == nil || !strings.Contains(err.Error(), "no administrator's") {
			t.Errorf("a member, while administrators are named: %v", err)
		}
	})
}

// A member that was away hears of a leader that was added meanwhile, at a host that it does not
// know, from the others. Nothing but its certificate says who the leader is.
func TestALeaderThatWasAddedAtAnotherHostIsTakenByAMemberThatWasAway(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		a := wiretest.NewAuthority(t, "cluster")
		members := identify(t, a, "127.0.0.1")
		for _, n := range w.nodes {
			n.args = members.flags
			n.start("--cluster=" + w.list)
		}
		l := w.leader()
		away := w.nodes[slices.IndexFunc(w.nodes, func(n *townsman) bool { return n != l })]
		away.kill()
		added := w.grow()
		added.door = newDoorOn(t, "127.0.0.4")
		added.args = identify(t, a, "127.0.0.4").flags
		added.start("--cluster=" + listOf(w.nodes...))
		lead := func(request string) {
			w.eventually(request, func() bool { return w.leader().askAs(members, request) == nil })
		}
		lead(`{"op":"add","node":"` + listOf(added) + `"}`)
		lead(`{"op":"transfer","to":"` + added.name + `"}`)
		w.eventually("the new node leads", func() bool { return w.leader() == added })
		away.start("--cluster=" + w.list)
		w.eventually("it follows", func() bool {
			_, text := away.leaderz()
			return strings.HasPrefix(text, "standby, leader is "+added.name)
		})
	})
}
