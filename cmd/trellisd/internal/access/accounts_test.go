package access

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"trellis/engine"
	"trellis/engine/account"
)

// serves is an engine that knows the accounts of a store.
func (s *Store) serves(t *testing.T) *engine.Engine {
	e := engine.New(engine.Config{Accounts: &s.Accounts})
	t.Cleanup(e.Discard)
	return e
}

func TestAnAccountsLineSaysItsTubesAndLimits(t *testing.T) {
	s, _ := newStore(t, "a "+hashOf("a")+" put *\n"+
		"account acme tubes acme/*,shared max-jobs 1000000 max-memory 2Gi max-tubes 1000 max-connections 500 max-keys 100000 rate 5000/s # team\n"+
		"account beta rate 0/s max-memory 1.5GB tubes beta\n")
	list := s.serves(t).Accounts().Snapshots()
	if len(list) != 2 || list[0].Name != "acme" || list[1].Name != "beta" {
		t.Fatalf("%+v", list)
	}
	if got, want := list[0].Limits, (account.Limits{Jobs: 1e6, Memory: 2 << 30, Tubes: 1000, Keys: 1e5, Connections: 500, Rate: 5000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := list[1].Limits, (account.Limits{Memory: 1_500_000_000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := fmt.Sprint(list[0].Tubes, list[1].Tubes); got != "[acme/* shared] [beta]" {
		t.Error(got)
	}
}

func TestAClientMayBeNamedAccount(t *testing.T) {
	s, _ := newStore(t, "account "+hashOf("a")+" put *\naccount uid:7 put,work a,b account b\naccount b tubes b\n")
	if s.token("a") == nil || len(s.serves(t).Accounts().Snapshots()) != 1 {
		t.Fatal("it is not known")
	}
}

func TestEachMistakeInAnAccountsLineIsReported(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"account", "f:1: the account has no name"},
		{"account a/b tubes a", `f:1: account "a/b": a name has 1 to 64 of the bytes A-Z a-z 0-9 - . _`},
		{"account " + strings.Repeat("a", 65) + " tubes a", `f:1: account "aaaa`},
		{"account a", "f:1: account a: it has no tubes; say which, as in: tubes a/*"},
		{"account a max-jobs 1", "f:1: account a: it has no tubes; say which, as in: tubes a/*"},
		{"account a tubes", "f:1: account a: tubes has no value"},
		{"account a tubes a**", `f:1: account a: no tube can match "a**"`},
		{"account a tubes a,b,a", "f:1: account a: a,b,a has the same tubes twice"},
		{"account a tubes a tubes b", "f:1: account a: tubes is there twice"},
		{"account a tubes a max-job 1", `f:1: account a: unknown word "max-job"; give tubes, max-jobs, max-memory, max-tubes, max-keys, max-connections or rate`},
		{"account a tubes a max-jobs -1", "f:1: account a: max-jobs -1: not a number; 0 means no limit"},
		{"account a tubes a max-jobs 9223372036854775808", "f:1: account a: max-jobs 9223372036854775808: not a number"},
		{"account a tubes a max-memory 2E", "f:1: account a: max-memory 2E: not a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000); 0 means no limit"},
		{"account a tubes a max-memory GB", "f:1: account a: max-memory GB: not a number in bytes"},
		{"account a tubes a max-memory 8388608T", "f:1: account a: max-memory 8388608T: not a number in bytes"},
		{"account a tubes a rate 5000", "f:1: account a: rate 5000: not a number of commands a second of at most 10000000/s, as 5000/s is; 0/s means no limit"},
		{"account a tubes a rate 10000001/s", "f:1: account a: rate 10000001/s: not a number"},
		{"account a tubes a\naccount a tubes b", "f:2: account a has a line already, line 1"},
		{"account a tubes a,b\naccount b tubes b*,b", "f:2: account b: the tubes b are those of the account in line 1"},
		{"x uid:1 put * account b\naccount a tubes a", `f:1: no account "b"; it needs a line of its own, as: account b tubes b/*`},
		{"x uid:1 put * accounts a", "f:1: 6 fields; a line has a name, a credential, rights and tubes, and may go on with account and a name"},
	} {
		_, err := New("f", slog.New(slog.DiscardHandler)).Load([]byte(tt.text + "\nc uid:3 put *"))
		var mistake *FileError
		if !errors.As(err, &mistake) || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestThereAreNotMoreAccountsThanCanBeShown(t *testing.T) {
	var text strings.Builder
	for n := range maxAccounts + 1 {
		fmt.Fprintf(&text, "account a%d tubes a%d\n", n, n)
	}
	s := New("f", slog.New(slog.DiscardHandler))
	_, err := s.Load([]byte(text.String() + "c uid:3 put *"))
	if err == nil || err.Error() != "f:1001: account a1000: there are 1000 accounts before it, and no more are possible" {
		t.Error(err)
	}
	if n := len(s.serves(t).Accounts().Snapshots()); n != maxAccounts {
		t.Errorf("there are %d", n)
	}
}

func TestAccountsChangeWithTheFile(t *testing.T) {
	client := "a " + hashOf("a") + " put * account acme\nb " + hashOf("b") + " put *\n"
	s, _ := newStore(t, client+"account acme tubes acme/* max-jobs 7\naccount beta tubes beta\n")
	e := s.serves(t)
	load := func(text string) (gone func(*engine.Grant) bool, err error) { return s.Load([]byte(text)) }
	a, b := s.token("a"), s.token("b")
	limits := func() string {
		var all []string
		for _, x := range e.Accounts().Snapshots() {
			all = append(all, fmt.Sprintf("%s%v%d", x.Name, x.Tubes, x.Limits.Jobs))
		}
		return strings.Join(all, " ")
	}
	// A limit that changes ends no connection.
	gone, err := load(client + "account acme tubes acme/* max-jobs 8\n")
	if err != nil || gone(a) || gone(b) || limits() != "acme[acme/*]8" {
		t.Fatalf("%v; gone: %v %v; %s", err, gone(a), gone(b), limits())
	}
	// A line with a mistake leaves the account as it was, but for tubes that are another's now.
	gone, err = load(client + "account acme tubes acme/* max-jobs 9 x\naccount gamma tubes gamma\n")
	if err == nil || gone(a) || gone(b) || limits() != "gamma[gamma]0 acme[acme/*]8" {
		t.Fatalf("%v; gone: %v %v; %s", err, gone(a), gone(b), limits())
	}
	if _, err = load(client + "account acme tubes\naccount gamma tubes acme/*\n"); err == nil || limits() != "gamma[acme/*]0 acme[]8" {
		t.Fatalf("%v; %s", err, limits())
	}
	// Without its account, a client's line has a mistake; and so it has no rights.
	gone, err = load(client)
	if err == nil || !gone(a) || gone(b) || limits() != "" || s.token("a") != nil {
		t.Fatalf("%v; gone: %v %v; %s", err, gone(a), gone(b), limits())
	}
	// A client that goes to an account, or leaves it, connects again.
	gone, err = load(client + "account acme tubes acme/*\n")
	if a = s.token("a"); err != nil || gone(b) || a == nil {
		t.Fatal(err)
	}
	if gone, err = load(strings.ReplaceAll(client, " account acme", "")); err != nil || !gone(a) || gone(b) {
		t.Fatal(err, gone(a), gone(b))
	}
}
