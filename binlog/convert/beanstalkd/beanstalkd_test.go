package beanstalkd

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"
)

func job(id uint64, s State) Job {
	return Job{
		ID: id, Pri: 5, Delay: 3e9, TTR: 60e9, Created: 1_700_000_000_000_001_000, Deadline: 1_700_000_003_000_001_000,
		Reserves: 1, Timeouts: 2, Releases: 3, Buries: 4, Kicks: 5, State: s,
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	b := AppendVersion(nil)
	full := job(1, Delayed)
	b = AppendFull(b, &full, "mail", []byte("hello"))
	if want := 4 + FullSize("mail", 5); int64(len(b)) != want {
		t.Errorf("%d bytes, want %d", len(b), want)
	}
	short := job(1, Invalid)
	short.BodySize = 7
	b = AppendShort(b, &short)
	end := len(b)
	b = append(b, make([]byte, 100)...)

	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var e Entry
	if err := r.Next(&e); err != nil {
		t.Fatal(err)
	}
	full.BodySize = 7
	if e.Job != full || string(e.Tube) != "mail" || string(b[e.Body:e.Body+5]) != "hello" || e.Offset != 4 {
		t.Errorf("full record: %+v", e)
	}
	if err := r.Next(&e); err != nil {
		t.Fatal(err)
	}
	if e.Job != short || e.Tube != nil || int(e.Offset) != end-84 {
		t.Errorf("short record: %+v", e)
	}
	if err := r.Next(&e); err != io.EOF {
		t.Errorf("end: %v", err)
	}
}

// The bytes are those of a file that beanstalkd 1.12 wrote on x86-64.
func TestAFileOfBeanstalkdsIsReadFieldByField(t *testing.T) {
	b, err := hex.DecodeString(strings.Join(strings.Fields(`
		07000000 04000000 6d61696c 0100000000000000 e8030000 00000000 0000000000000000 005847f80d000000
		07000000 00000000 08c22a57aad9e918 0000000000000000 00000000 00000000 00000000 00000000 00000000
		01000000 68656c6c6f0d0a
		00000000 0100000000000000 05000000 00000000 0000000000000000 005847f80d000000
		07000000 00000000 08c22a57aad9e918 f8397b4fb8d9e918 01000000 00000000 00000000 01000000 00000000
		03000000`), ""))
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var e Entry
	if err := r.Next(&e); err != nil {
		t.Fatal(err)
	}
	want := Job{ID: 1, Pri: 1000, TTR: 60e9, BodySize: 7, Created: 0x18e9d9aa572ac208, State: Ready}
	if e.Job != want || string(e.Tube) != "mail" || string(b[e.Body:][:5]) != "hello" {
		t.Errorf("full record: %+v, want %+v", e, want)
	}
	if err := r.Next(&e); err != nil {
		t.Fatal(err)
	}
	want.Pri, want.Deadline, want.Reserves, want.Buries, want.State = 5, 0x18e9d9b84f7b39f8, 1, 1, Buried
	if e.Job != want {
		t.Errorf("short record: %+v, want %+v", e, want)
	}
	if err := r.Next(&e); err != io.EOF {
		t.Errorf("end: %v", err)
	}
}

func TestFileNumbersAreThoseThatBeanstalkdOpens(t *testing.T) {
	for name, want := range map[string]int{"binlog.1": 1, "binlog.0": 0, "binlog.123": 123} {
		if n, ok := FileNumber(name); !ok || n != want || FileName(n) != name {
			t.Errorf("%s: %d, %v", name, n, ok)
		}
	}
	for _, name := range []string{"binlog.", "binlog.01", "binlog.-1", "binlog.1x", "binlog.3.bak", "binlog", "lock", "binlog.99999999999"} {
		if n, ok := FileNumber(name); ok {
			t.Errorf("%s is number %d", name, n)
		}
	}
}
