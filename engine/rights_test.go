package engine

import (
	"strings"
	"testing"

	"trellis/codec"
)

func TestAGrantPermitsItsNamesAndWhatBeginsWithItsPrefixes(t *testing.T) {
	for _, x := range []struct {
		tubes    string
		yes, not []string
	}{
		{"*", []string{"default", "a", "auth", strings.Repeat("x", 200)}, []string{"auth/", "auth/token"}},
		{"a", []string{"a"}, []string{"", "aa", "a*", "b", "default"}},
		{"a*", []string{"a", "aa", "a/b"}, []string{"b", "ba"}},
		{"b,a/*,z", []string{"a/", "a/x", "b", "z"}, []string{"a", "ab", "b/", "y"}},
	} {
		g := NewGrant("", RightAll, strings.Split(x.tubes, ","))
		for _, tube := range x.yes {
			if !g.permits(tube) {
				t.Errorf("%s does not permit %q", x.tubes, tube)
			}
		}
		for _, tube := range x.not {
			if g.permits(tube) {
				t.Errorf("%s permits %q", x.tubes, tube)
			}
		}
	}
}

func TestAGrantCanBeMadeOfItsTerms(t *testing.T) {
	name, account, rights, tubes := NewGrant("client", RightAll, []string{"b/*", "a"}).In("acme").Terms()
	g := NewGrant(name, rights, tubes).In(account)
	if name != "client" || rights != RightAll || !g.permits("b/c") || !g.permits("a") || g.permits("ab") {
		t.Errorf("%+v", g)
	}
}

// A command that is added to the protocol must not slip through.
func TestEveryCommandIsDeniedToSomebodyWithoutRights(t *testing.T) {
	p := newPlant(t, 1)
	c := &plantClient{tb: t, loop: p.loops[0]}
	c.loop.OpenGranted(&c.session, NewGrant("", 0, nil), 0)
	for op := range codec.Op(255) {
		allowed := c.session.mayExecute(&codec.Command{Op: op, Tube: []byte("a")})
		switch op {
		case codec.OpQuit, codec.OpCapabilities, codec.OpStatsOwnConn, codec.OpListTubeUsed, codec.OpListTubesWatched,
			codec.OpUnknown, codec.OpAuth, codec.OpHTTP, codec.OpBadFormat:
			if !allowed {
				t.Errorf("%v is denied", op)
			}
		default:
			if allowed {
				t.Errorf("%v is allowed", op)
			}
		}
	}
}
