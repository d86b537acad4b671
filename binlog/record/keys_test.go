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
	return k
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
	r.Keys = journal.Keys{Unique: "unique", Seconds: 5, Limited: "limited", Limit: 2}
	sound := make([]byte, r.Size())
	EncodeFull(sound, 7, r)
	at := keysAt(sound)
	for name, change := range map[string]func(b []byte){
		"no keys":                    func(b []byte) { b[at], b[at+1] = 0, 0 },
		"a unique key too long":      func(b []byte) { b[at] = 200 },
		"a limited key too long":     func(b []byte) { b[at+1] = 65 },
		"keys longer than they are":  func(b []byte) { b[at] += 8 },
		"keys shorter than they are": func(b []byte) { b[at+1] -= 5 },
		"no limit":                   func(b []byte) { le.PutUint32(b[at+6:], 0) },
		"a body too long":            func(b []byte) { le.PutUint32(b[44:], 29) },
		"a tombstone with a body":    func(b []byte) { b[68] = byte(journal.Deleted) | keysFlag },
		"an unknown state":           func(b []byte) { b[68] = 2 | keysFlag },
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
