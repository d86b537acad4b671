package member

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

func joined() Identity {
	return Identity{
		Incarnation: 7, State: Joined, Self: 2, Round: 1,
		Cluster: Cluster{ID: ClusterID{1}, Members: []Member{{1, 6, "n1", "h1:1"}, {2, 7, "n2", "h2:1"}}},
	}
}

func TestMarkIsReadAsItWasWritten(t *testing.T) {
	for _, id := range []Identity{{Incarnation: 5}, joined()} {
		fsys := faultfs.New("/d")
		if err := Write(fsys, "/d", id); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(fsys, "/d"); err != nil || !got.equal(id) {
			t.Fatalf("%+v, %v; want %+v", got, err, id)
		}
	}
}

// The bytes are what doc.go says, so that they can be checked by hand.
func TestMarkIsThreeLinesOfText(t *testing.T) {
	b, err := encode(Identity{Incarnation: 0xabc})
	want := "trellis member 1\n" +
		`{"incarnation":"0000000000000abc","state":"empty","self":"0000000000000000","round":0,"cluster":{"id":"00000000000000000000000000000000","members":null}}` +
		"\ncrc32c bd05f7ee\n"
	if err != nil || string(b) != want {
		t.Fatalf("%q, %v; want %q", b, err, want)
	}
}

func TestDamagedMarkIsRefused(t *testing.T) {
	whole, err := encode(joined())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, i int, b []byte) {
		fsys := faultfs.New("/d")
		f, err := fsys.Create("/d/cluster", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		calls := fsys.Calls()
		_, err = Open(fsys, "/d", Node{"n2", "h2:1"}, nil)
		if !errors.Is(err, ErrDamaged) || !strings.HasPrefix(err.Error(), "/d/cluster: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %d: %v, want one line that wraps ErrDamaged", what, i, err)
		}
		if d := fsys.Calls() - calls; d > 3 {
			t.Errorf("%s %d: %d calls for a mark that cannot be read", what, i, d)
		}
	}
	for i := range whole {
		refused("cut at", i, whole[:i])
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			b := slices.Clone(whole)
			b[i] ^= bit
			refused("changed at", i, b)
		}
	}
	refused("longer by", 1, append(slices.Clone(whole), '\n'))
	refused("too long by", maxMark, make([]byte, 2*maxMark))
}

func TestMarkOfALaterProgramIsNotDamaged(t *testing.T) {
	b := []byte("trellis member 2\nwhatever\nthere\n")
	if _, err := decode(append(b, sumLine(b)...)); !errors.Is(err, ErrVersion) {
		t.Fatalf("%v, want ErrVersion", err)
	}
}

func TestMarkThatContradictsItselfIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Identity){
		"no incarnation":    func(id *Identity) { id.Incarnation = 0 },
		"another self":      func(id *Identity) { id.Self = 3 },
		"other incarnation": func(id *Identity) { id.Incarnation = 8 },
		"empty":             func(id *Identity) { id.State = Empty },
		"no round":          func(id *Identity) { id.State, id.Round = Proposed, 0 },
		"invited":           func(id *Identity) { id.State = Invited },
		"no cluster":        func(id *Identity) { id.Cluster.ID = ClusterID{} },
		"same id":           func(id *Identity) { id.Cluster.Members[0].ID = 2 },
		"same name":         func(id *Identity) { id.Cluster.Members[0].Name = "n2" },
		"bad address":       func(id *Identity) { id.Cluster.Members[0].Addr = "x" },
		"unknown state":     func(id *Identity) { id.State = 9 },
	} {
		id := joined()
		change(&id)
		if b, err := encode(id); err == nil {
			t.Errorf("%s: %s", name, b)
		}
	}
}

func FuzzMark(f *testing.F) {
	for _, id := range []Identity{{Incarnation: 5}, joined()} {
		b, _ := encode(id)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decode(b)
		if err != nil {
			return
		}
		if again, err := encode(id); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q was read and is written as %q, %v", b, again, err)
		}
	})
}

// A power cut in each of Write's calls leaves the old mark or the new one; after Write
// has returned, the new one.
func TestWriteThatIsCutLeavesTheOldMarkOrTheNewOne(t *testing.T) {
	old, next := Identity{Incarnation: 7}, joined()
	for n := 1; ; n++ {
		for seed := range uint64(20) {
			fsys := faultfs.New("/d")
			if err := Write(fsys, "/d", old); err != nil {
				t.Fatal(err)
			}
			at := fsys.Calls() + n
			fsys.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.N == at} })
			err := Write(fsys, "/d", next)
			got, rerr := Read(fsys.PowerCut(rand.New(rand.NewPCG(seed, uint64(n)))), "/d")
			if rerr != nil || (!got.equal(old) && !got.equal(next)) || (err == nil && !got.equal(next)) {
				t.Fatalf("cut at call %d: Write: %v, then %+v, %v", n, err, got, rerr)
			}
			if err == nil && seed == 19 {
				return
			}
		}
	}
}

func TestFailedWriteIsForGood(t *testing.T) {
	fsys := faultfs.New("/d")
	s, err := Open(fsys, "/d", Node{"n1", "h1:1"}, []Node{{"n1", "h1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	fsys.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "syncdir" {
			return faultfs.Fault{Err: broken}
		}
		return faultfs.Fault{}
	})
	next := propose(s.self, s.nodes, s.Identity(), make([]reply, 1))
	if _, err := s.replace(s.Identity(), next); !errors.Is(err, broken) {
		t.Fatalf("%v, want the error of the sync", err)
	}
	fsys.Hook(nil)
	if _, ok, err := s.Control([]byte(`{"op":"probe"}`), nil); !ok || !errors.Is(err, broken) {
		t.Fatalf("a node that does not know what is on its disk answers: %v %v", ok, err)
	}
	if _, err := s.replace(s.Identity(), next); !errors.Is(err, broken) {
		t.Fatalf("it writes again: %v", err)
	}
}

func TestOpenRefusesDirectories(t *testing.T) {
	self, nodes := Node{"n1", "h1:1"}, []Node{{"n1", "h1:1"}, {"n2", "h2:1"}}
	for _, c := range []struct {
		file    string
		dir     bool
		want    error
		without bool // what is there is no obstacle
	}{
		{file: "lock", without: true},
		{file: "lost+found", dir: true, without: true},
		{file: "cluster.tmp", without: true},
		{file: "binlog.0000000001", want: ErrForeign},
		{file: "something", want: ErrForeign},
		{file: "entries", dir: true, want: ErrDamaged},
		{file: "snapshots", dir: true, want: ErrDamaged},
	} {
		fsys := faultfs.New("/d")
		var err error
		if c.dir {
			err = fsys.Mkdir("/d/" + c.file)
		} else {
			_, err = fsys.Create("/d/"+c.file, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(fsys, "/d", self, nodes)
		if !errors.Is(err, c.want) || (err == nil) != c.without {
			t.Errorf("%s: %v, want %v", c.file, err, c.want)
		}
		if _, rerr := Read(fsys, "/d"); err != nil && !errors.Is(rerr, fs.ErrNotExist) {
			t.Errorf("%s: the directory was refused and has a mark: %v", c.file, rerr)
		}
	}
}

func TestOpenRefusesACommandLineThatDisagrees(t *testing.T) {
	n1, n2 := Node{"n1", "h1:1"}, Node{"n2", "h2:1"}
	proposed := joined()
	proposed.State = Proposed
	removed := joined()
	removed.State = Removed
	for _, c := range []struct {
		name  string
		mark  Identity
		self  Node
		nodes []Node
		want  string
	}{
		{"as it was founded", joined(), n2, []Node{n1, n2}, ""},
		{"without --cluster", joined(), n2, nil, ""},
		{"another node's directory", joined(), n1, []Node{n1, n2}, "it is that of n2=h2:1, and --node says n1=h1:1"},
		{"another address", joined(), Node{"n2", "h9:1"}, nil, "it is that of n2=h2:1, and --node says n2=h9:1"},
		{"two addresses", joined(), n2, []Node{n1, {"n2", "h9:1"}}, "--node says n2=h2:1, and --cluster says n2=h9:1"},
		{"two names", joined(), n2, []Node{n1, {"n9", "h2:1"}}, "--cluster has that address as n9=h2:1"},
		{"removed", removed, n2, []Node{n1, n2}, "this node was removed from its cluster"},
		{"founding goes on", proposed, n2, []Node{n1, n2}, ""},
		{"founding of others", proposed, n2, []Node{n1, n2, {"n3", "h3:1"}}, "it is to found n1=h1:1,n2=h2:1, and --cluster says n1=h1:1,n2=h2:1,n3=h3:1"},
		{"founding in another order", proposed, n2, []Node{n2, n1}, "it is to found"},
		{"empty, and nobody to ask", Identity{Incarnation: 1}, n2, nil, "--cluster has to name the members"},
	} {
		fsys := faultfs.New("/d")
		if err := Write(fsys, "/d", c.mark); err != nil {
			t.Fatal(err)
		}
		_, err := Open(fsys, "/d", c.self, c.nodes)
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if got, err := Read(fsys, "/d"); err != nil || !got.equal(c.mark) {
			t.Errorf("%s: the mark became %+v, %v", c.name, got, err)
		}
	}
}

func TestMembersOfTheFoundingAndOfNowAgree(t *testing.T) {
	n1, n2, n3 := Node{"n1", "h1:1"}, Node{"n2", "h2:1"}, Node{"n3", "h3:1"}
	now := []Member{{2, 7, "n2", "h2:1"}, {3, 8, "n3", "h3:1"}}
	for _, c := range []struct {
		nodes []Node
		want  string
	}{
		{nil, ""},
		{[]Node{n1, n2}, ""},
		{[]Node{n2, n1}, ""},
		{[]Node{n1}, ""},
		{[]Node{n2, n3}, ""},
		{[]Node{n3}, ""},
		{[]Node{n1, n3}, "the members are n2=h2:1,n3=h3:1, as far as is known here, and --cluster says n1=h1:1,n3=h3:1"},
		{[]Node{n1, n2, n3}, "--cluster says"},
		{[]Node{n2, {"n3", "h4:1"}}, "--cluster says"},
	} {
		fsys := faultfs.New("/d")
		if err := Write(fsys, "/d", joined()); err != nil {
			t.Fatal(err)
		}
		s, err := Open(fsys, "/d", n2, c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Agree(now)
		if (c.want == "") != (err == nil) || (err != nil && (!errors.Is(err, ErrDisagrees) || !strings.Contains(err.Error(), c.want))) {
			t.Errorf("%v: %v, want %q", c.nodes, err, c.want)
		}
	}
}

func TestMarkOnTheOperatingSystemsDisk(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []Identity{{Incarnation: 7}, joined()} {
		if err := Write(vfs.OS{}, dir, id); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(vfs.OS{}, dir); err != nil || !got.equal(id) {
			t.Fatalf("%+v, %v; want %+v", got, err, id)
		}
	}
}
