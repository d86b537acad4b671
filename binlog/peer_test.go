package binlog

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trellis/binlog/convert"
	"trellis/binlog/convert/beanstalkd"
	"trellis/binlog/vfs"
)

// peer is a real beanstalkd with a log in dir.
type peer struct {
	t    testing.TB
	cmd  *exec.Cmd
	conn net.Conn
	r    *bufio.Reader
}

func startPeer(t testing.TB, dir string, args ...string) *peer {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf("TRELLIS_NEED_PEERS is 1: %v", err)
		}
		t.Skip("beanstalkd is not installed: skipped, for TRELLIS_NEED_PEERS is not 1")
	}
	sockDir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockDir) })
	sock := filepath.Join(sockDir, "s")
	var stderr bytes.Buffer
	p := &peer{t: t, cmd: exec.Command(path, append([]string{"-b", dir, "-l", "unix:" + sock}, args...)...)}
	p.cmd.Stderr = &stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if p.conn, err = net.Dial("unix", sock); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("beanstalkd does not listen: %v\n%s", err, &stderr)
		}
	}
	p.r = bufio.NewReader(p.conn)
	return p
}

func (p *peer) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// do sends a command and returns the line of the reply, with the body behind it
// if it has one.
func (p *peer) do(format string, args ...any) string {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.conn, format+"\r\n", args...); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.r.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%.40s: %v", fmt.Sprintf(format, args...), err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	word, rest, _ := strings.Cut(line, " ")
	if word != "OK" && word != "FOUND" && word != "RESERVED" {
		return line
	}
	n, err := strconv.Atoi(rest[strings.LastIndex(rest, " ")+1:])
	if err != nil {
		p.t.Fatal(err)
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(p.r, b); err != nil {
		p.t.Fatal(err)
	}
	return line + "\r\n" + string(b[:n])
}

// want is do with the reply that it must have.
func (p *peer) want(reply, format string, args ...any) {
	p.t.Helper()
	if got := p.do(format, args...); got != reply {
		p.t.Fatalf("%.40s: %q, want %q", fmt.Sprintf(format, args...), got, reply)
	}
}

// stats is the answer to stats-job.
func (p *peer) stats(id uint64) map[string]string {
	p.t.Helper()
	head, body, _ := strings.Cut(p.do("stats-job %d", id), "\r\n")
	if !strings.HasPrefix(head, "OK ") {
		return nil
	}
	m := map[string]string{}
	for line := range strings.Lines(body) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			m[k] = v
		}
	}
	return m
}

// same compares a record with what stats-job and peek say.
func (p *peer) same(r *Record, buries uint32) {
	p.t.Helper()
	asked := time.Now()
	s := p.stats(r.ID)
	answered := time.Now()
	want := map[string]string{
		"tube": r.Tube, "state": r.State.String(),
		"pri": fmt.Sprint(r.Pri), "delay": fmt.Sprint(r.Delay), "ttr": fmt.Sprint(r.TTR),
		"reserves": fmt.Sprint(r.Reserves), "timeouts": fmt.Sprint(r.Timeouts), "releases": fmt.Sprint(r.Releases),
		"buries": fmt.Sprint(buries), "kicks": fmt.Sprint(r.Kicks),
	}
	for k, v := range want {
		if s[k] != v {
			p.t.Errorf("job %d: beanstalkd says %s: %q, the record %q", r.ID, k, s[k], v)
		}
	}
	seconds := func(key string, at int64) {
		p.t.Helper()
		n, err := strconv.ParseFloat(s[key], 64)
		a, b := math.Abs(asked.Sub(time.Unix(0, at)).Seconds()), math.Abs(answered.Sub(time.Unix(0, at)).Seconds())
		if err != nil || n < min(a, b)-3 || n > max(a, b)+3 {
			p.t.Errorf("job %d: %s is %q, in the record it is at %v", r.ID, key, s[key], time.Unix(0, at))
		}
	}
	seconds("age", r.Created)
	if r.State == Delayed {
		seconds("time-left", r.Due)
	}
	if want := fmt.Sprintf("FOUND %d %d\r\n%s", r.ID, len(r.Body), r.Body); p.do("peek %d", r.ID) != want {
		p.t.Errorf("job %d: the bodies differ", r.ID)
	}
}

func body(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	return string(b)
}

const maxJob = 65535

func TestALogOfBeanstalkdsIsImported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPeer(t, dir, "-s", "20000")
	n := 0
	put := func(pri, delay, ttr, size int) uint64 {
		t.Helper()
		n++
		p.want(fmt.Sprintf("INSERTED %d", n), "put %d %d %d %d\r\n%s", pri, delay, ttr, size, body(size))
		return uint64(n)
	}
	var ids []uint64
	for _, size := range []int{0, 1, 2, 100, maxJob - 3, maxJob - 2, maxJob - 1, maxJob} {
		ids = append(ids, put(5, 0, 60, size))
	}
	p.want("USING mail", "use mail")
	for i := range 30 {
		ids = append(ids, put(i%4, 0, 100+i, 50+i))
	}
	ids = append(ids, put(math.MaxUint32, 3600, math.MaxInt32, 3), put(0, 7200, 1, 3))
	// Enough that files are compacted and removed.
	for range 2000 {
		id := put(1, 0, 1, 500)
		p.want("DELETED", "delete %d", id)
	}
	if _, err := os.Stat(filepath.Join(dir, "binlog.1")); err == nil {
		t.Fatal("beanstalkd has not compacted its log")
	}
	// Buried in another order than put, one of them twice.
	bury := func(id uint64, pri int) {
		t.Helper()
		if got := p.do("reserve-job %d", id); !strings.HasPrefix(got, "RESERVED ") {
			t.Fatal(got)
		}
		p.want("BURIED", "bury %d %d", id, pri)
	}
	buried := []uint64{20, 12, 30, 15, 11}
	bury(15, 1)
	p.want("KICKED", "kick-job 15")
	for i, id := range buried {
		bury(id, 100+i)
	}
	p.do("reserve-job 13")
	p.want("RELEASED", "release 13 77 5000")
	p.do("reserve-job 14")
	p.want("RELEASED", "release 14 78 6000")
	p.want("KICKED", "kick-job 14")
	p.want("DELETED", "delete 16")
	ids = slices.DeleteFunc(ids, func(id uint64) bool { return id == 16 })

	o := newOwner()
	if err := o.open(dir, Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(p.cmd.Process.Pid)) {
		t.Fatalf("open while beanstalkd runs (process %d): %v", p.cmd.Process.Pid, err)
	}
	var records []Record
	check := func() {
		for _, id := range ids {
			j := o.jobs[id]
			if j == nil {
				t.Fatalf("job %d did not come over", id)
			}
			records = append(records, j.Record)
		}
		if len(o.jobs) != len(ids) {
			t.Errorf("%d jobs came over, want %d", len(o.jobs), len(ids))
		}
	}
	// The server is asked before it is killed, and the answers are compared with
	// what is imported: so that import is tested on what a kill leaves.
	type said struct {
		stats map[string]string
		peek  string
	}
	answers := map[uint64]said{}
	for _, id := range ids {
		answers[id] = said{p.stats(id), p.do("peek %d", id)}
	}
	p.kill()
	if err := o.open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	check()
	for i := range records {
		r := &records[i]
		a := answers[r.ID]
		got := fmt.Sprint(r.Tube, r.State, r.Pri, r.Delay, r.TTR, r.Reserves, r.Timeouts, r.Releases, r.Buries, r.Kicks)
		s := a.stats
		want := fmt.Sprint(s["tube"], s["state"]) + " " + strings.Join([]string{s["pri"], s["delay"], s["ttr"], s["reserves"], s["timeouts"], s["releases"], s["buries"], s["kicks"]}, " ")
		if got != want {
			t.Errorf("job %d came over as %q, was %q", r.ID, got, want)
		}
		if want := fmt.Sprintf("FOUND %d %d\r\n%s", r.ID, len(r.Body), r.Body); a.peek != want {
			t.Errorf("job %d: another body came over", r.ID)
		}
	}
	order := slices.SortedFunc(slices.Values(buried), func(a, b uint64) int {
		return cmp.Compare(o.jobs[a].BuryOrder, o.jobs[b].BuryOrder)
	})
	if !slices.Equal(order, buried) {
		t.Errorf("buried in the order %v, came over as %v", buried, order)
	}
	if got := o.log.NextID(); got != uint64(n+1) {
		t.Errorf("the next id is %d, want %d", got, n+1)
	}
	imported := o.log.Recovery().Imported
	if imported == nil || imported.Buried != 5 || imported.Delayed != 3 || imported.LastID != uint64(n) {
		t.Errorf("the report says %+v", imported)
	}
	if kept, err := filepath.Glob(filepath.Join(imported.Aside, "binlog.*")); err != nil || len(kept) != imported.Files {
		t.Errorf("kept aside: %v, %v", kept, err)
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	// And the second time it is an ordinary log.
	o2 := newOwner()
	if err := o2.open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer o2.log.Close()
	if d := diff(o2.snapshot(), o.snapshot()); d != "" {
		t.Error(d)
	}
	if o2.log.Recovery().Imported != nil {
		t.Error("imported a second time")
	}
}

func TestBeanstalkdReadsWhatIsExported(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	o := newOwner()
	if err := o.open(dir, Options{Sync: SyncNever}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	buried := []uint64{40, 7, 23, 3}
	for id := range uint64(60) {
		id++
		r := &Record{
			ID: id, State: Ready, Pri: uint32(id % 5), TTR: 60 + uint32(id), Created: now.Add(-time.Duration(id)*time.Minute).UnixMicro() * 1000,
			Reserves: uint32(id), Timeouts: 2, Releases: 3, Buries: 4, Kicks: 5,
			Tube: []string{"default", "mail"}[id%2], Body: []byte(body(int(id * id * 18))),
		}
		if id%9 == 0 {
			r.State, r.Delay, r.Due = Delayed, 5000, now.Add(time.Hour).UnixMicro()*1000
		}
		if _, err := o.put(r); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range buried {
		r := o.jobs[id].Record
		r.State, r.BuryOrder, r.Buries, r.Tube = Buried, uint64(i+1), 9, "default"
		if _, err := o.update(&r); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []uint64{60, 59, 8} {
		if _, err := o.delete(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	x, err := convert.Export(vfs.OS{}, dir, to)
	if err != nil {
		t.Fatal(err)
	}
	if x.Jobs != 57 || x.LastID != 60 {
		t.Errorf("exported %+v", x)
	}
	p := startPeer(t, to, "-z", fmt.Sprint(x.MaxJobSize))
	for _, id := range slices.Sorted(maps.Keys(o.jobs)) {
		r := o.jobs[id].Record
		buries := r.Buries
		if r.State == Buried {
			buries++ // as beanstalkd does whenever it reads a log
		}
		p.same(&r, buries)
	}
	for tube, want := range map[string][]uint64{"default": {40}, "mail": {7, 23, 3}} {
		p.want("USING "+tube, "use %s", tube)
		for _, id := range want {
			if got := p.do("peek-buried"); !strings.HasPrefix(got, fmt.Sprintf("FOUND %d ", id)) {
				t.Errorf("the first buried job is %.20q, want %d", got, id)
			}
			p.want("KICKED 1", "kick 1")
		}
	}
	p.want("INSERTED 61", "put 0 0 1 1\r\nx")

	if _, err := convert.Export(vfs.OS{}, dir, to); !errors.Is(err, ErrLocked) {
		t.Errorf("export into a directory in use: %v", err)
	}
	p.kill()
	if _, err := convert.Export(vfs.OS{}, dir, to); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("export over another log: %v", err)
	}

	// And back again.
	back := newOwner()
	if err := back.open(to, Options{}); err != nil {
		t.Fatal(err)
	}
	defer back.log.Close()
	if len(back.jobs) != len(o.jobs)+1 {
		t.Errorf("%d jobs came back, want %d", len(back.jobs), len(o.jobs)+1)
	}
}

// appendV5 writes a full record as beanstalkd 1.4.6 did.
func appendV5(b []byte, j *beanstalkd.Job, tube, body string) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(len(tube)))
	b = append(b, tube...)
	b = le.AppendUint64(b, j.ID)
	b = le.AppendUint32(b, j.Pri)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(j.Delay/1000))
	b = le.AppendUint64(b, uint64(j.TTR/1000))
	b = le.AppendUint32(b, uint32(len(body)+2))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(j.Created/1000))
	b = le.AppendUint64(b, uint64(j.Deadline/1000))
	for _, n := range []uint32{j.Reserves, j.Timeouts, j.Releases, j.Buries, j.Kicks} {
		b = le.AppendUint32(b, n)
	}
	b = append(b, byte(j.State))
	if tube == "" {
		return b
	}
	return append(b, body+"\r\n"...)
}

func TestVersion5IsReadAsBeanstalkdReadsIt(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixMicro() * 1000
	file := binary.LittleEndian.AppendUint32(nil, 5)
	var jobs []*beanstalkd.Job
	for id := range uint64(20) {
		j := &beanstalkd.Job{
			ID: id + 1, Pri: uint32(id), Delay: int64(id) * 1e9, TTR: int64(id+1) * 1e9, Created: now - int64(id)*1e9,
			Reserves: 1, Timeouts: 2, Releases: 3, Buries: 4, Kicks: 5, State: beanstalkd.Ready,
		}
		switch id % 5 {
		case 1:
			j.State = beanstalkd.Reserved
		case 2:
			j.State, j.Deadline = beanstalkd.Delayed, now+5000e9
		case 3:
			j.State = beanstalkd.Buried
		}
		jobs = append(jobs, j)
		file = appendV5(file, j, "mail", body(int(id)))
	}
	jobs[7].State, jobs[7].Pri, jobs[7].BodySize = beanstalkd.Ready, 99, 9
	file = appendV5(file, jobs[7], "", body(7))
	jobs[8].State = beanstalkd.Invalid
	file = appendV5(file, jobs[8], "", body(8))
	file = append(file, make([]byte, 1000)...)

	ours, theirs := t.TempDir(), t.TempDir()
	for _, dir := range []string{ours, theirs} {
		if err := os.WriteFile(filepath.Join(dir, "binlog.3"), file, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	o := newOwner()
	if err := o.open(ours, Options{}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if len(o.jobs) != 19 {
		t.Fatalf("%d jobs came over, want 19", len(o.jobs))
	}
	p := startPeer(t, theirs)
	for _, id := range slices.Sorted(maps.Keys(o.jobs)) {
		r := o.jobs[id].Record
		buries := r.Buries
		if r.State == Buried {
			buries++
		}
		p.same(&r, buries)
	}
}
