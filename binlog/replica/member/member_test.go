package member

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNodesAreReadOrRefused(t *testing.T) {
	many := make([]string, MaxMembers+1)
	for i := range many {
		many[i] = "n" + strings.Repeat("x", i) + "=h:1" + strings.Repeat("0", i%4)
	}
	for _, c := range []struct {
		in, refused string
	}{
		{"n1=10.0.0.1:11390", ""},
		{"n1=10.0.0.1:11390,n2=[::1]:1,a.b_c-d=host-2.example:65535", ""},
		{strings.Repeat("n", MaxName) + "=h:1", ""},
		{"", "not name=host:port"},
		{"n1", "not name=host:port"},
		{"n1=h:1,", "not name=host:port"},
		{"=h:1", "not a node's name"},
		{"-n=h:1", "not a node's name"},
		{"n/1=h:1", "not a node's name"},
		{"nö=h:1", "not a node's name"},
		{strings.Repeat("n", MaxName+1) + "=h:1", "not a node's name"},
		{"n1=h", "not an address"},
		{"n1=:1", "not an address"},
		{"n1=h:0", "not a number"},
		{"n1=h:01", "not a number"},
		{"n1=h:65536", "not a number"},
		{"n1=h:http", "not a number"},
		{"n1=::1:1", "not an address"},
		{"n1=a b:1", "neither a name nor"},
		{"n1=0.0.0.0:1", "no address that other members can dial"},
		{"n1=[::]:1", "no address that other members can dial"},
		{"n1=" + strings.Repeat("h", MaxAddr) + ":1", "not an address"},
		{"n1=h:1,n1=h:2", "the name n1 is there twice"},
		{"n1=h:1,n2=h:1", "n1 and n2 have the same address"},
		{strings.Join(many, ","), "at most 32 members"},
	} {
		ns, err := ParseNodes(c.in)
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%q: %v", c.in, err)
		case c.refused == "" && formatNodes(ns) != c.in:
			t.Errorf("%q was read as %q", c.in, formatNodes(ns))
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%.80q: %v, want %q", c.in, err, c.refused)
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: more than one line: %v", c.in, err)
		}
	}
}

func FuzzParseNodes(f *testing.F) {
	f.Add("n1=10.0.0.1:11390,n2=[::1]:1")
	f.Fuzz(func(t *testing.T, s string) {
		ns, err := ParseNodes(s)
		if err == nil && formatNodes(ns) != s {
			t.Fatalf("%q was read as %q", s, formatNodes(ns))
		}
	})
}

func TestIDsAreTextInJSON(t *testing.T) {
	m := Member{ID: 0xfedcba9876543210, Incarnation: 1, Name: "n1", Addr: "h:1"}
	b, err := json.Marshal(m)
	if want := `{"id":"fedcba9876543210","incarnation":"0000000000000001","name":"n1","addr":"h:1"}`; err != nil || string(b) != want {
		t.Fatalf("%s, %v; want %s", b, err, want)
	}
	var again Member
	if err := json.Unmarshal(b, &again); err != nil || again != m {
		t.Fatalf("%v, %v; want %v", again, err, m)
	}
	for _, bad := range []string{`{"id":1}`, `{"id":"1"}`, `{"id":"xyzxyzxyzxyzxyzx"}`, `{"id":"0000000000000000000"}`} {
		if json.Unmarshal([]byte(bad), &again) == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestDrawnIDsDiffer(t *testing.T) {
	ids := map[ID]bool{}
	for range 1000 {
		id := NewID()
		if id == 0 || ids[id] {
			t.Fatalf("%s was drawn after %d others", id, len(ids))
		}
		ids[id] = true
	}
}
