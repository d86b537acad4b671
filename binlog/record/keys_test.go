package record

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
)

// someKeys draws valid keys, or none.
func someKeys(t *rapid.T) (k journal.Keys) {
	key := rapid.StringMatching(`[a-z]{1,64}`)
	if rapid.Bool().Draw(t, "unique") {
		k.Unique, k.Seconds = key.Draw(t, "key"), rapid.Uint32().Draw(t, "seconds")
	}
	if rapid.Bool().Draw(t, "limited") {
		k.Limited, k.Limit = key.Draw(t, "limited key"), rapid.Uint32Min(1).Draw(t, "limit")
	}
	if rapid.Bool().Draw(t, "terms") {
		k.Terms = someTerms(t, key)
	}
	return k
}

// someTerms draws valid terms, nil if they are empty.
func someTerms(t *rapid.T, key *rapid.Generator[string]) *journal.Terms {
	var x journal.Terms
	for _, to := range []*string{&x.Fair, &x.Group, &x.After} {
		if rapid.Bool().Draw(t, "has") {
			*to = key.Draw(t, "text")
		}
	}
	if x.After == x.Group {
		x.After = ""
	}
	x.Settled = x.After != "" && rapid.Bool().Draw(t, "settled")
	if rapid.Bool().Draw(t, "expires") {
		x.Expires = rapid.Uint32().Draw(t, "seconds")
	}
	if x == (journal.Terms{}) {
		return nil
	}
	return &x
}

func TestKeysThatCannotBeAreInvalid(t *testing.T) {
	tombstone := journal.Keys{Unique: "k", Seconds: 1}
	for name, x := range map[string]struct {
		state journal.State
		body  int
		keys  journal.Keys
		valid bool
	}{
		"none":                      {journal.Ready, 1, journal.Keys{}, true},
		"both":                      {journal.Buried, 1, journal.Keys{Unique: "k", Limited: "c", Limit: 1}, true},
		"a unique key too long":     {journal.Ready, 1, journal.Keys{Unique: strings.Repeat("k", 65)}, false},
		"a limited key too long":    {journal.Ready, 1, journal.Keys{Limited: strings.Repeat("k", 65), Limit: 1}, false},
		"seconds of no key":         {journal.Ready, 1, journal.Keys{Seconds: 1}, false},
		"a limit of no key":         {journal.Ready, 1, journal.Keys{Limit: 1}, false},
		"a limit of none":           {journal.Ready, 1, journal.Keys{Limited: "c"}, false},
		"all terms":                 {journal.Delayed, 1, journal.Keys{Terms: &journal.Terms{Fair: "f", Group: "g", After: "h", Settled: true, Expires: 1}}, true},
		"an expiry":                 {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{Expires: 1}}, true},
		"no terms":                  {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{}}, false},
		"a fair key too long":       {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{Fair: strings.Repeat("k", 65)}}, false},
		"a group too long":          {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{Group: strings.Repeat("k", 65)}}, false},
		"a group too long to await": {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{After: strings.Repeat("k", 65)}}, false},
		"settled without a group":   {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{Fair: "f", Settled: true}}, false},
		"waits for itself":          {journal.Ready, 1, journal.Keys{Terms: &journal.Terms{Group: "g", After: "g"}}, false},
		"a tombstone with terms":    {journal.Deleted, 0, journal.Keys{Unique: "k", Seconds: 1, Terms: &journal.Terms{Expires: 1}}, false},
		"a tombstone":               {journal.Deleted, 0, tombstone, true},
		"a tombstone with a body":   {journal.Deleted, 1, tombstone, false},
		"a tombstone without a key": {journal.Deleted, 0, journal.Keys{}, false},
		"a tombstone with a limit":  {journal.Deleted, 0, journal.Keys{Unique: "k", Seconds: 1, Limited: "c", Limit: 1}, false},
		"a tombstone of no seconds": {journal.Deleted, 0, journal.Keys{Unique: "k"}, false},
	} {
		r := testRecord(1, x.body)
		r.State, r.Keys = x.state, x.keys
		if Valid(r) != x.valid {
			t.Errorf("%s: valid is %v", name, !x.valid)
			continue
		}
		b := make([]byte, r.Size())
		EncodeFull(b, 7, r)
		n, p, what := plausible(b, int64(len(b)), 7)
		if what == "" {
			what = check(b, p)
		}
		if x.valid && (what != "" || n != int64(len(b)) || impossible(b, 1) != "") {
			t.Errorf("%s: %s %s", name, what, impossible(b, 1))
		}
		if !x.valid && what == "" && impossible(b, 1) == "" {
			t.Errorf("%s: read as sound", name)
		}
	}
}

// What says of itself that it has keys is looked at, whatever its checksums say.
func TestKeysThatDoNotFitTheirRecordAreImpossible(t *testing.T) {
	r := testRecord(1, 20)
	r.Keys = journal.Keys{Unique: "unique", Seconds: 5, Limited: "limited", Limit: 2, Terms: &journal.Terms{Fair: "fair", Group: "group", After: "after", Expires: 9}}
	sound := make([]byte, r.Size())
	EncodeFull(sound, 7, r)
	at, terms := keysAt(sound), termsAt(sound)
	for name, change := range map[string]func(b []byte){
		"no keys":                    func(b []byte) { b[at], b[at+1] = 0, 0 },
		"a unique key too long":      func(b []byte) { b[at] = 200 },
		"a limited key too long":     func(b []byte) { b[at+1] = 65 },
		"keys longer than they are":  func(b []byte) { b[at] += 8 },
		"keys shorter than they are": func(b []byte) { b[at+1] -= 5 },
		"a fair key too long":        func(b []byte) { b[terms] = 65 },
		"a group too long":           func(b []byte) { b[terms+1] += 8 },
		"a shorter group to await":   func(b []byte) { b[terms+2] -= 3 },
		"unknown flags":              func(b []byte) { b[terms+3] = 2 },
		"settled without a group":    func(b []byte) { b[terms+1] += b[terms+2]; b[terms+2] = 0; b[terms+3] = 1 },
		"terms cut off":              func(b []byte) { b[68] &^= termsFlag },
		"no limit":                   func(b []byte) { le.PutUint32(b[at+6:], 0) },
		"a body too long":            func(b []byte) { le.PutUint32(b[44:], 29) },
		"a tombstone with a body":    func(b []byte) { b[68] = byte(journal.Deleted) | keysFlag | termsFlag },
		"an unknown state":           func(b []byte) { b[68] = 2 | keysFlag | termsFlag },
	} {
		b := bytes.Clone(sound)
		change(b)
		sealAll(b, 7)
		s := Scanner{f: bytes.NewReader(b), index: 1, salt: 7, size: int64(len(b))}
		if _, err := s.Next(); err == nil {
			t.Errorf("%s: read as sound", name)
		}
	}
}
