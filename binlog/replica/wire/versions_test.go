package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func TestBothSidesAgreeOnTheLowerOfTheHighestVersions(t *testing.T) {
	for _, c := range []struct {
		a, b versions
		want uint16
	}{
		{versions{1, 1}, versions{1, 1}, 1},
		{versions{1, 1}, versions{1, 2}, 1},
		{versions{1, 2}, versions{1, 2}, 2},
		{versions{2, 3}, versions{1, 9}, 3},
		{versions{2, 3}, versions{3, 4}, 3},
		{versions{1, 1}, versions{2, 2}, 0},
		{versions{1, 2}, versions{3, 4}, 0},
	} {
		if got, back := c.a.agreed(c.b), c.b.agreed(c.a); got != c.want || back != c.want {
			t.Errorf("%v and %v: %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}

// A program that speaks one version says hello as it did before there were ranges.
func TestAHelloOfOneVersionHasNoRange(t *testing.T) {
	h := sampleHello
	h.speaks = versions{1, 1}
	b := h.encode()
	if b[8] != 1 || b[9] != 0 || b[14] != 0 || b[15] != 0 {
		t.Errorf("%x", b)
	}
	h.speaks = versions{1, 2}
	got, err := readHello(bytes.NewReader(h.encode()), versions{1, 1})
	if err != nil || !got.equal(h) {
		t.Errorf("%+v, %v", got, err)
	}
	h.speaks = versions{2, 1}
	b = h.encode()
	b[14] = 1
	b = le.AppendUint32(b[:len(b)-4], crcOf(b[:len(b)-4]))
	if _, err := readHello(bytes.NewReader(b), versions{1, 2}); err == nil {
		t.Error("a range that ends before it begins")
	}
}

// Members of programs that follow each other talk, whoever dials.
func TestMembersOfAnEarlierAndALaterProgramTalk(t *testing.T) {
	for _, c := range []struct{ a, b versions }{
		{versions{1, 1}, versions{1, 2}},
		{versions{1, 2}, versions{1, 2}},
		{versions{1, 2}, versions{2, 3}},
	} {
		t.Run(fmt.Sprint(c.a, " and ", c.b), func(t *testing.T) {
			ns := nodes(t, 2, setup{timing: patient, change: func(i int, n *node, cfg *Config) {
				cfg.speaks = []versions{c.a, c.b}[i]
				n.control = echo
			}})
			meet(t, ns...)
			for i, n := range ns {
				other := ns[1-i]
				n.tr.Send(message(raftpb.MsgHeartbeat, n, other))
				eventually(t, "a message arrives", func() bool { return other.count() == 1 })
				if _, err := Call(t.Context(), ClientConfig{speaks: c.a, timing: patient}, n.self.Addr, []byte("{}")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Both sides say what each speaks.
func TestMembersWithoutACommonVersionAreApart(t *testing.T) {
	ns := nodes(t, 2, setup{timing: patient, change: func(i int, _ *node, cfg *Config) {
		cfg.speaks = []versions{{1, 1}, {2, 3}}[i]
	}})
	for i, want := range []string{
		"the protocol between members is spoken here in versions 2 to 3, and there in version 1",
		"the protocol between members is spoken here in version 1, and there in versions 2 to 3",
	} {
		for _, msg := range []string{"no connection to a member", "a connection was ended"} {
			n := ns[i]
			if msg == "a connection was ended" {
				n = ns[1-i]
			}
			eventually(t, n.self.Name+": "+msg+": "+want, func() bool {
				for line := range strings.Lines(n.log.String()) {
					if strings.Contains(line, msg) && strings.Contains(line, want) {
						return true
					}
				}
				return false
			})
		}
	}
}
