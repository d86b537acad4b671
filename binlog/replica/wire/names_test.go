package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire/wiretest"
)

// greetAs connects to a node with a certificate, as dialAs does without.
func greetAs(t *testing.T, to *node, c *Credentials, h hello) error {
	t.Helper()
	conn, err := tls.Dial("tcp", to.self.Addr, c.client("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(h.encode()); err != nil {
		t.Fatal(err)
	}
	_, err = readReply(conn, h.speaks)
	return err
}

// Whoever has a certificate of the same authority is no member by that.
func TestACertificateOfTheAuthorityDoesNotMakeAMember(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	soon := time.Now().Add(time.Hour)
	mine := load(t, ours.Issue(soon, "127.0.0.1"), ours)
	stranger := load(t, ours.Issue(soon, "web.example", "10.9.9.9"), ours)
	added := load(t, ours.Issue(soon, "127.0.0.9"), ours)
	calls := make(chan Caller, 10)
	ns := nodes(t, 2, setup{timing: patient, tls: func(int) *Credentials { return mine }, change: func(i int, n *node, cfg *Config) {
		if i == 0 {
			cfg.Dial = nowhere // so that the lanes are those of the test
		}
		n.callers, n.control, n.take = calls, echo, discard
		cfg.Nodes = []member.Node{{Name: "n8", Addr: "127.0.0.8:1"}}
	}})
	newcomer := hello{
		speaks: spoken(), cluster: testCluster, index: 1 << 40, to: stationOf(ns[1].self),
		from: member.Member{ID: 7, Incarnation: 8, Name: "n7", Addr: "127.0.0.9:1"},
	}
	for _, p := range []purpose{purposeAppends, purposeRest, purposeSnapshot} {
		newcomer.purpose = p
		for what, h := range map[string]hello{"a member": helloOf(p, ns[0], ns[1]), "a newcomer": newcomer} {
			err := greetAs(t, ns[1], stranger, h)
			if r := (*refusal)(nil); !errors.As(err, &r) || r.status != refused || !strings.Contains(r.reason, "the certificate of web.example is") {
				t.Errorf("%s, %s: %v", what, p, err)
			}
		}
		if err := greetAs(t, ns[1], mine, helloOf(p, ns[0], ns[1])); err != nil {
			t.Errorf("a member, %s: %v", p, err)
		}
		if err := greetAs(t, ns[1], added, newcomer); err == nil {
			t.Errorf("a newcomer of whom nobody has said that it was added, %s", p)
		}
	}
	ns[1].tr.Announce([]member.Member{newcomer.from})
	if err := greetAs(t, ns[1], added, newcomer); err != nil {
		t.Errorf("a newcomer that was announced: %v", err)
	}
	for _, c := range []struct {
		by            *Credentials
		name          string
		member, admin bool
	}{
		{mine, "127.0.0.1", true, true},
		{stranger, "web.example", false, false},
		{load(t, ours.Issue(soon, "127.0.0.8"), ours), "127.0.0.8", true, true}, // by --cluster
	} {
		if _, err := Call(t.Context(), asks(c.by), ns[1].self.Addr, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got := <-calls; got.Name != c.name || (got.Member == nil) != c.member || (got.Admin == nil) != c.admin {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestNamesOfMembersAndAdministratorsAreChecked(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	soon := time.Now().Add(time.Hour)
	calls := make(chan Caller, 10)
	as := func(hosts ...string) *Credentials {
		c := load(t, ours.Issue(soon, append(hosts, "127.0.0.1")...), ours)
		c.MemberNames, c.AdminNames = []string{"q*.example"}, []string{"ops.example", "CN=root"}
		return c
	}
	good, bad := as("q1.example"), as("w1.example")
	ns := nodes(t, 2, setup{timing: patient, tls: func(i int) *Credentials { return []*Credentials{good, bad}[i] }, change: func(_ int, n *node, _ *Config) {
		n.callers, n.control = calls, echo
	}})
	// Each side checks the other.
	has := func(n *node, msg string) func() bool {
		return func() bool {
			for s := range strings.Lines(n.log.String()) {
				if strings.Contains(s, msg) && strings.Contains(s, "the certificate of w1.example is no member's: none of --cluster-allowed-name names it") {
					return true
				}
			}
			return false
		}
	}
	eventually(t, "n1 gives its connection up", has(ns[0], "no connection to a member"))
	eventually(t, "n1 refuses one", has(ns[0], "a connection was ended"))
	eventually(t, "n2 is told", has(ns[1], "no connection to a member"))
	for _, c := range []struct {
		name          string
		member, admin bool
	}{
		{"q2.example", true, false},
		{"ops.example", false, true},
		{"w1.example", false, false},
	} {
		mine := as(c.name)
		mine.MemberNames = nil // as the tool's
		if _, err := Call(t.Context(), asks(mine), ns[0].self.Addr, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		got := <-calls
		if got.Name != c.name || (got.Member == nil) != c.member || (got.Admin == nil) != c.admin {
			t.Errorf("%s: %+v", c.name, got)
		}
		if !c.admin && !strings.Contains(got.Admin.Error(), "start the members with --cluster-admin-name "+c.name) {
			t.Errorf("%s: %v", c.name, got.Admin)
		}
	}
}

func TestPatternsOfNames(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	cert := func(hosts ...string) *Credentials {
		return load(t, ours.Issue(time.Now().Add(time.Hour), hosts...), ours)
	}
	for _, c := range []struct {
		hosts   []string
		pattern string
		want    bool
	}{
		{[]string{"q1.example"}, "q1.example", true},
		{[]string{"Q1.example"}, "q1.EXAMPLE", true},
		{[]string{"q1.example"}, "q*.example", true},
		{[]string{"q1.example"}, "q2.example", false},
		{[]string{"q1.example.evil"}, "q*.example", false},
		{[]string{"*.example"}, "q1.example", true},
		{[]string{"*.example"}, "*.example", true},
		{[]string{"10.0.0.1"}, "10.0.0.*", true},
		{[]string{"fd00::1"}, "fd00::1", true},
		{[]string{"q1.example"}, "node", false}, // the common name
		{[]string{"q1.example"}, "CN=node", true},
		{nil, "", false},
	} {
		leaf := cert(c.hosts...).now().pair.Leaf
		if got := matches(leaf, []string{c.pattern}); got != c.want {
			t.Errorf("%v, %q: %t", c.hosts, c.pattern, got)
		}
	}
	if CheckPattern("q[") == nil || CheckPattern("q*") != nil {
		t.Error("CheckPattern")
	}
	if host := hostOf(net.JoinHostPort("fd00::1", "1")); host != "fd00::1" {
		t.Error(host)
	}
}

func TestACertificateThatHasExpiredIsTheSameLineEachTime(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	cfg := load(t, ours.Issue(time.Now().Add(-time.Hour), "127.0.0.1"), ours)
	said := map[string]bool{}
	for i := range 3 {
		_, err := cfg.now().pair.Leaf.Verify(x509.VerifyOptions{Roots: cfg.now().roots, CurrentTime: time.Now().Add(time.Duration(i) * time.Second)})
		if err == nil {
			t.Fatal("it is valid")
		}
		said[line(&tls.CertificateVerificationError{Err: err})] = true
	}
	if len(said) != 1 {
		t.Errorf("%v", said)
	}
}
