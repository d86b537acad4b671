package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire/frame"
)

var sampleHello = hello{
	speaks: spoken(), purpose: purposeRest, cluster: member.ClusterID{1, 15: 2},
	from: member.Member{ID: 0x1111, Incarnation: 0x2222, Name: "n1", Addr: "127.0.0.1:11301"}, index: 0x5555,
	to: station{0x3333, 0x4444},
}

func (h hello) equal(o hello) bool {
	return h.speaks == o.speaks && h.purpose == o.purpose && h.cluster == o.cluster && h.from == o.from && h.index == o.index && h.to == o.to
}

func TestHelloIsReadAsItWasWritten(t *testing.T) {
	for p := purposeAppends; p <= purposeTrunk; p++ {
		h := sampleHello
		h.purpose = p
		got, err := readHello(bytes.NewReader(h.encode()), spoken())
		if err != nil || !got.equal(h) {
			t.Errorf("%+v, %v; want %+v", got, err, h)
		}
	}
}

func TestDamagedHelloIsRefused(t *testing.T) {
	whole := sampleHello.encode()
	for i := range whole {
		if _, err := readHello(bytes.NewReader(whole[:i]), spoken()); err == nil || (i > 0 && err == io.EOF && i >= len(magic)) {
			t.Errorf("cut at %d: %v", i, err)
		}
		b := slices.Clone(whole)
		b[i] ^= 4
		if _, err := readHello(bytes.NewReader(append(b, 1, 2, 3, 4)), spoken()); !errors.Is(err, errHello) {
			t.Errorf("changed at %d: %v", i, err)
		}
	}
	long := sampleHello
	long.from.Name = strings.Repeat("n", member.MaxName+1)
	if _, err := readHello(bytes.NewReader(long.encode()), spoken()); !errors.Is(err, errHello) {
		t.Errorf("a name that is too long: %v", err)
	}
	long = sampleHello
	long.from.Addr = strings.Repeat("1", member.MaxAddr+1)
	if _, err := readHello(bytes.NewReader(long.encode()), spoken()); !errors.Is(err, errHello) {
		t.Errorf("an address that is too long: %v", err)
	}
	h := sampleHello
	for _, p := range []purpose{0, purposeTrunk + 1} {
		h.purpose = p
		if _, err := readHello(bytes.NewReader(h.encode()), spoken()); !errors.Is(err, errHello) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestAHelloOfALaterVersionIsKnownAsOne(t *testing.T) {
	h := sampleHello
	h.speaks, h.purpose = versions{3, 4}, 77
	got, err := readHello(bytes.NewReader(h.encode()), spoken())
	if err != nil || got.speaks != h.speaks {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestAnswerToAHello(t *testing.T) {
	for _, c := range []struct {
		s      status
		reason string
		want   string
	}{
		{welcome, "", ""},
		{refused, "why", "why"},
		{notMember, "", ""},
		{refused, "two\nlines\x00 \x1b[31m", "two?lines? ?[31m"},
		{refused, strings.Repeat("x", 1000), strings.Repeat("x", maxReason)},
	} {
		b := encodeReply(1, c.s, c.reason)
		_, err := readReply(bytes.NewReader(b), spoken())
		r := (*refusal)(nil)
		if (c.s == welcome) != (err == nil) || (err != nil && (!errors.As(err, &r) || r.status != c.s || r.reason != c.want)) {
			t.Errorf("%d %.20q: %v", c.s, c.reason, err)
		}
		for i := range b {
			if _, err := readReply(bytes.NewReader(b[:i]), spoken()); err == nil {
				t.Errorf("cut at %d: a welcome", i)
			}
			d := slices.Clone(b)
			d[i] ^= 1
			if _, err := readReply(bytes.NewReader(d), spoken()); err == nil || errors.As(err, &r) {
				t.Errorf("changed at %d: %v", i, err)
			}
		}
	}
	b := encodeReply(1, welcome, "")
	b[8] = 3
	b = le.AppendUint32(b[:replyHead], crcOf(b[:replyHead]))
	if _, err := readReply(bytes.NewReader(b), spoken()); !errors.Is(err, errHello) {
		t.Errorf("a welcome in another version: %v", err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(sampleHello.encode())
	f.Add(hello{speaks: spoken(), purpose: purposeControl}.encode())
	longest := sampleHello
	longest.from.Name, longest.from.Addr = strings.Repeat("n", member.MaxName), strings.Repeat("1", member.MaxAddr)
	f.Add(longest.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b), spoken())
		if err == nil && spoken().agreed(h.speaks) != 0 && !bytes.HasPrefix(b, h.encode()) {
			t.Fatalf("%x was read as %+v", b, h)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(encodeReply(1, welcome, ""))
	f.Add(encodeReply(1, refused, "why"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := readReply(bytes.NewReader(b), spoken())
		if err == nil && b[10] != 0 {
			t.Fatalf("%x is a welcome", b)
		}
		if r := (*refusal)(nil); errors.As(err, &r) && strings.ContainsAny(r.reason, "\n\r\x00\x1b") {
			t.Fatalf("%q would go to the log", r.reason)
		}
	})
}

func crcOf(b []byte) uint32 { return frame.Sum(0, b) }
