package trunk

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestClientsAreReadAsTheyWereWritten(t *testing.T) {
	for _, o := range []Open{
		{Session: 1},
		{Session: 1<<64 - 1, Network: NetworkUnix},
		{Session: 5, Network: NetworkOwn},
		OpenOf(6, netip.MustParseAddrPort("192.0.2.1:65535")),
		OpenOf(7, netip.MustParseAddrPort("[2001:db8::1]:1")),
		OpenOf(8, netip.AddrPort{}),
	} {
		b := o.Append(nil)
		if got, err := ParseOpen(b); err != nil || got != o || len(b) > maxOpen {
			t.Errorf("%+v was read as %+v, %v", o, got, err)
		}
		for _, b := range [][]byte{b[:len(b)-1], append(b, 0), nil} {
			if got, err := ParseOpen(b); !errors.Is(err, ErrFormat) {
				t.Errorf("%x was read as %+v, %v", b, got, err)
			}
		}
	}
	if o := OpenOf(1, netip.MustParseAddrPort("[fe80::1%eth0]:9")); o.Client.String() != "[fe80::1]:9" {
		t.Errorf("the zone is a member's own: %v", o.Client)
	}
	for _, o := range []Open{{}, {Session: 1, Network: NetworkIPv6 + 1}} {
		if _, err := ParseOpen(o.Append(nil)); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v was read: %v", o, err)
		}
	}
}

func TestGrantsAreReadAsTheyWereWritten(t *testing.T) {
	many := Grant{Name: strings.Repeat("n", maxText), Account: "acme", Rights: 31}
	for i := range 1000 {
		many.Tubes = append(many.Tubes, fmt.Sprintf("%d%s*", i, strings.Repeat("t", 100)))
	}
	for _, g := range []Grant{{}, {Name: "a", Rights: 1, Tubes: []string{"*"}}, many} {
		got := Grant{}
		for part := g; ; {
			b, rest := part.Append(nil)
			p, err := ParseGrant(b)
			if err != nil || len(b) > MaxData {
				t.Fatalf("a grant of %d bytes: %v", len(b), err)
			}
			got.Name, got.Account, got.Rights, got.Tubes = p.Name, p.Account, p.Rights, append(got.Tubes, p.Tubes...)
			if part.Tubes = rest; rest == nil {
				break
			}
		}
		if !reflect.DeepEqual(got, g) {
			t.Errorf("%+v was read as %+v", g, got)
		}
	}
	for _, b := range [][]byte{nil, {0, 0}, {0, 1, 0}, {0, 0, 0, 1}, {0, 0, 0, 2, 'a'}} {
		if g, err := ParseGrant(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%x was read as %+v, %v", b, g, err)
		}
	}
}

func TestWhatWasDeniedIsReadAsItWasWritten(t *testing.T) {
	for _, d := range []Denied{{}, {Command: "move-job", Tube: "t", To: "u", Result: "NOT_FOUND", ID: 7}} {
		b := d.Append(nil)
		if got, err := ParseDenied(b); err != nil || got != d {
			t.Errorf("%+v was read as %+v, %v", d, got, err)
		}
		for _, b := range [][]byte{b[:len(b)-1], append(b, 0), nil} {
			if got, err := ParseDenied(b); !errors.Is(err, ErrFormat) {
				t.Errorf("%x was read as %+v, %v", b, got, err)
			}
		}
	}
}

func TestWelcomesAreReadAsTheyWereWritten(t *testing.T) {
	w := Welcome{Version: 1, Extensions: true, MaxJobSize: 65535, Term: 3, Fence: 2}
	b := w.Append(nil)
	if got, err := ParseWelcome(b); err != nil || got != w {
		t.Errorf("%+v was read as %+v, %v", w, got, err)
	}
	for i, v := range map[int]byte{2: 2, 3: 1, 24: 1, 31: 1} {
		b := w.Append(nil)
		b[i] = v
		if _, err := ParseWelcome(b); !errors.Is(err, ErrFormat) {
			t.Errorf("byte %d of %d: %v", i, v, err)
		}
	}
}
