package offline

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
)

var n1 = member.Node{Name: "n1", Addr: "127.0.0.1:11390"}

// jobs are the bodies and priorities of jobs by their ids: a Standby and a Restorer.
type jobs map[uint64]string

func text(r *journal.Record) string {
	return fmt.Sprintf("%s %s %d %v", r.Tube, r.Body, r.Pri, r.State)
}

func (js jobs) Full(r *journal.Record, _ journal.Place) (f journal.Former, err error) {
	js[r.ID] = text(r)
	return f, nil
}

func (js jobs) Update(r *journal.Record) error {
	if old, ok := js[r.ID]; ok {
		var tube, body string
		if _, err := fmt.Sscan(old, &tube, &body); err != nil {
			return err
		}
		js[r.ID] = fmt.Sprintf("%s %s %d %v", tube, body, r.Pri, r.State)
	}
	return nil
}

func (js jobs) Setting(s *journal.Setting) error {
	js[settingID] = s.Tube + ": " + s.Pairs()
	return nil
}

func (js jobs) Hold(*journal.Hold) error { return nil }

func (js jobs) Close(uint64) error { return nil }

func (js jobs) Numbers(*journal.Numbers) error { return nil }

// settingID is where jobs has the last setting.
const settingID = 1 << 63

// deadLetters is the setting of the log that writeBinlog makes.
const deadLetters = "mail: attempts=3 dead=dead"

func (js jobs) Delete(id uint64) uint32 {
	delete(js, id)
	return 1
}

func job(id uint64, body string) *journal.Record {
	return &journal.Record{ID: id, State: journal.Ready, Pri: 7, TTR: 60, Tube: "mail", Body: []byte(body)}
}

// writeBinlog makes a binlog with jobs 1 to n but for the first one, and a setting.
func writeBinlog(t *testing.T, n uint64) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := binlog.Open(dir, binlog.Options{})
	if err == nil {
		err = l.Replay(jobs{})
	}
	if err == nil {
		err = l.Start(binlog.Hooks{})
	}
	for id := uint64(1); id <= n && err == nil; id++ {
		_, err = l.Put(job(id, fmt.Sprint("body", id)))
	}
	if err == nil {
		_, err = l.Delete(1, journal.Former{Segment: 1, Size: journal.Size("mail", 5)})
	}
	if err == nil {
		setting := journal.DeadLetters("mail", 3, "dead")
		_, err = l.Set(&setting)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// load returns what a node would begin with, and its first snapshot.
func load(t *testing.T, dir string) (jobs, snapshot.Meta) {
	t.Helper()
	meta, path, err := snapshot.Current(vfs.OS{}, filepath.Join(dir, snapshotsDir))
	if err != nil {
		t.Fatal(err)
	}
	js := jobs{}
	if err := snapshot.Load(vfs.OS{}, path, js, nil); err != nil {
		t.Fatal(err)
	}
	l, err := entrylog.Open(filepath.Join(dir, entriesDir), entrylog.Options{Snapshot: meta.Raft()})
	if err != nil {
		t.Fatal(err)
	}
	if r := l.Recovery(); r.Emptied || r.Entries != 0 {
		t.Errorf("the log was %+v", r)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return js, meta
}

func TestABinlogBecomesAClusterOfOne(t *testing.T) {
	from, dir := writeBinlog(t, 3), filepath.Join(t.TempDir(), "new")
	made, err := Init(vfs.OS{}, from, n1, dir)
	if err != nil {
		t.Fatal(err)
	}
	js, meta := load(t, dir)
	if want := (jobs{2: "mail body2 7 ready", 3: "mail body3 7 ready", settingID: deadLetters}); !maps.Equal(js, want) {
		t.Errorf("%v, want %v", js, want)
	}
	if made.LastID < 3 || made.NextID != made.LastID+SkippedIDs+1 || meta.Highest != made.NextID-1 || meta.Decided != made.NextID || meta.Stamp == 0 {
		t.Errorf("%+v, %+v", made, meta)
	}
	s, err := member.Open(vfs.OS{}, dir, n1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id := s.Identity(); id.State != member.Joined || id.Cluster.ID != made.Cluster || len(meta.Members) != 1 || meta.Members[0] != id.Member() {
		t.Errorf("%+v, %+v", id, meta.Members)
	}
}

// A memberDir is the directory of a member with a snapshot of three jobs, and entries
// behind it.
type memberDir struct {
	t    *testing.T
	dir  string
	log  *entrylog.Log
	last uint64
}

func newMemberDir(t *testing.T) *memberDir {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "old")
	made, err := Init(vfs.OS{}, writeBinlog(t, 3), n1, dir)
	if err != nil || made.Records != 3 {
		t.Fatal(made, err)
	}
	_, meta := load(t, dir)
	m := &memberDir{t: t, dir: dir, last: 1}
	if m.log, err = entrylog.Open(filepath.Join(dir, entriesDir), entrylog.Options{Snapshot: meta.Raft()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.log.Close() })
	return m
}

// append appends an entry of a term, with a batch of another or the same.
func (m *memberDir) append(term, batchTerm, sequence uint64, last uint64, records ...func([]byte) []byte) {
	m.t.Helper()
	b := make([]byte, entry.HeaderSize)
	kind := entry.Records
	if len(records) == 0 {
		kind = entry.Begin
	}
	for _, r := range records {
		b = r(b)
	}
	h := entry.Header{Kind: kind, Term: batchTerm, Sequence: sequence, Stamp: 5, LastID: last}
	h.Seal(b)
	m.last++
	index := m.last
	e := &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(), Data: b}
	commit := uint64(2)
	if err := m.log.Append(entrylog.Update{
		Entries: []*raftpb.Entry{e}, HardState: &raftpb.HardState{Term: &term, Commit: &commit},
	}); err != nil {
		m.t.Fatal(err)
	}
}

func full(r *journal.Record) func([]byte) []byte {
	return func(b []byte) []byte {
		at := len(b)
		b = append(b, make([]byte, journal.Size(r.Tube, len(r.Body)))...)
		record.EncodeFull(b[at:], entry.Salt, r)
		return b
	}
}

func update(r *journal.Record) func([]byte) []byte {
	return func(b []byte) []byte {
		at := len(b)
		b = append(b, make([]byte, record.UpdateSize)...)
		record.EncodeUpdate(b[at:], entry.Salt, r)
		return b
	}
}

func end(id uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		at := len(b)
		b = append(b, make([]byte, record.SmallSize)...)
		record.EncodeSmall(b[at:], entry.Salt, record.Delete, id)
		return b
	}
}

func TestAMemberIsRecoveredWithAllThatItsLogHolds(t *testing.T) {
	m := newMemberDir(t)
	_, old := load2(t, m)
	id := old.Highest + 1
	m.append(2, 2, 1, id)
	m.append(2, 2, 2, id+1, full(job(id, "new")), end(2))
	m.append(3, 2, 3, id+5, full(job(id+5, "of-a-term-that-was-over"))) // counts for nobody
	buried := job(3, "")
	buried.State, buried.Pri = journal.Buried, 9
	m.append(3, 3, 1, id+1)
	m.append(3, 3, 2, id+1, update(buried))
	if err := m.log.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := member.Read(vfs.OS{}, m.dir)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	made, err := Recover(vfs.OS{}, m.dir, n1, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	js, meta := load(t, dir)
	if want := (jobs{3: "mail body3 9 buried", id: "mail new 7 ready", settingID: deadLetters}); !maps.Equal(js, want) {
		t.Errorf("%v, want %v", js, want)
	}
	if made.Entries != 5 || made.Uncommitted != 4 || made.LastID != id+1 || made.NextID != id+2+SkippedIDs || meta.Decided != made.NextID {
		t.Errorf("%+v", made)
	}
	if made.Old != before.Cluster.ID || made.Cluster == made.Old {
		t.Errorf("cluster %s became %s", made.Old, made.Cluster)
	}
	if after, err := member.Read(vfs.OS{}, m.dir); err != nil || after.Cluster.ID != made.Old {
		t.Errorf("the old directory is that of %v now, %v", after, err)
	}
	again, err := Recover(vfs.OS{}, m.dir, n1, filepath.Join(t.TempDir(), "again"), false)
	if err != nil || again.LastID != made.LastID || again.Records != made.Records || again.Cluster == made.Cluster {
		t.Errorf("%+v, %v", again, err)
	}
}

// load2 reads the snapshot of a directory whose log is open.
func load2(t *testing.T, m *memberDir) (string, snapshot.Meta) {
	t.Helper()
	meta, path, err := snapshot.Current(vfs.OS{}, filepath.Join(m.dir, snapshotsDir))
	if err != nil {
		t.Fatal(err)
	}
	return path, meta
}

func TestABackupIsABinlog(t *testing.T) {
	m := newMemberDir(t)
	path, _ := load2(t, m)
	var stream bytes.Buffer
	if err := snapshot.Send(vfs.OS{}, path, &stream); err != nil {
		t.Fatal(err)
	}
	whole := stream.Bytes()
	dir := filepath.Join(t.TempDir(), "backup")
	for cut := range len(whole) {
		if cut%7 != 0 && cut < len(whole)-20 {
			continue
		}
		if _, err := Backup(vfs.OS{}, dir, bytes.NewReader(whole[:cut])); err == nil {
			t.Fatalf("%d of %d bytes are a backup", cut, len(whole))
		}
		if es, err := os.ReadDir(dir); err != nil || len(es) != 1 { // the lock
			t.Fatalf("%d bytes left %v, %v", cut, es, err)
		}
	}
	if _, err := Backup(vfs.OS{}, dir, bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	l, err := binlog.Open(dir, binlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	js := jobs{}
	if err := l.Replay(js); err != nil {
		t.Fatal(err)
	}
	if want := (jobs{2: "mail body2 7 ready", 3: "mail body3 7 ready", settingID: deadLetters}); !maps.Equal(js, want) || l.NextID() < SkippedIDs {
		t.Errorf("%v, want %v; next id %d", js, want, l.NextID())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(vfs.OS{}, dir, bytes.NewReader(whole)); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("%v, want %v", err, ErrNotEmpty)
	}
	if _, err := Init(vfs.OS{}, dir, n1, filepath.Join(t.TempDir(), "restored")); err != nil {
		t.Error(err)
	}
}

func TestWhatNoMemberIsMadeOf(t *testing.T) {
	log, none, m := writeBinlog(t, 1), t.TempDir(), newMemberDir(t)
	if err := m.log.Close(); err != nil {
		t.Fatal(err)
	}
	recover := func(from, dir string) error { _, err := Recover(vfs.OS{}, from, n1, dir, false); return err }
	create := func(from, dir string) error { _, err := Init(vfs.OS{}, from, n1, dir); return err }
	fresh := filepath.Join(t.TempDir(), "new")
	for _, x := range []struct {
		what string
		err  error
		want error
	}{
		{"a binlog is recovered", recover(log, fresh), ErrNoMember},
		{"nothing is recovered", recover(none, fresh), ErrNoMember},
		{"a directory that is not there is recovered", recover(filepath.Join(none, "x"), fresh), os.ErrNotExist},
		{"a member is recovered into itself", recover(m.dir, m.dir), vfs.ErrLocked},
		{"a member is recovered into a binlog", recover(m.dir, log), ErrNotEmpty},
		{"a member becomes another one", create(m.dir, fresh), binlog.ErrCluster},
		{"nothing becomes a member", create(none, fresh), ErrNoLog},
		{"a binlog becomes a member in its place", create(log, log), ErrNotEmpty},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", x.what, x.err, x.want)
		}
	}
	// What was refused has left nothing that stands in the way.
	if err := create(log, fresh); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(m.dir, "cluster")); err != nil {
		t.Fatal(err)
	}
	if err := recover(m.dir, filepath.Join(t.TempDir(), "x")); !errors.Is(err, ErrNoMember) {
		t.Errorf("without its mark: %v", err)
	}
}
