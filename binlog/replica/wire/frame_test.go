package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/member"
)

var allKinds = []kind{kindMessage, kindPulse, kindChunk, kindEnd, kindDone, kindRequest, kindResponse, kindError}

func encodeFrame(k kind, payload []byte) []byte {
	w := &bytes.Buffer{}
	_ = newFrameWriter(w, bufSize).frame(k, payload)
	return w.Bytes()
}

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	sizes := []int{0, 1, 100, maxText, maxChunk - 1, maxChunk, bufSize - 12, bufSize - 11, bufSize, 100_000, MaxControl, 3 << 20, MaxMessage}
	var all []byte
	type frame struct {
		k kind
		b []byte
	}
	var want []frame
	rng := rand.NewChaCha8([32]byte{})
	for _, k := range allKinds {
		for _, size := range sizes {
			if size <= int(maxPayload[k]) {
				b := make([]byte, size)
				_, _ = rng.Read(b)
				want = append(want, frame{k, b})
				all = append(all, encodeFrame(k, b)...)
			}
		}
	}
	for name, src := range map[string]io.Reader{
		"at once":       bytes.NewReader(all),
		"in halves":     iotest.HalfReader(bytes.NewReader(all)),
		"with the end":  iotest.DataErrReader(bytes.NewReader(all)),
		"a byte at all": iotest.OneByteReader(bytes.NewReader(all[:500_000])),
	} {
		r := newFrameReader(src, bufSize, allKinds...)
		for i, w := range want {
			if name != "at once" && len(w.b) > MaxControl {
				break
			}
			k, b, err := r.next()
			if name == "a byte at all" && errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			if err != nil || k != w.k || !bytes.Equal(b, w.b) {
				t.Fatalf("%s: frame %d is kind %d of %d bytes, %v; want kind %d of %d", name, i, k, len(b), err, w.k, len(w.b))
			}
			if i == len(want)-1 {
				if _, _, err := r.next(); err != io.EOF {
					t.Fatalf("%s: %v behind the last frame", name, err)
				}
			}
		}
	}
}

func TestTornFramesAreNoFrames(t *testing.T) {
	for _, size := range []int{0, 5, 300, bufSize + 100} {
		whole := encodeFrame(kindMessage, make([]byte, size))
		for cut := 1; cut < len(whole); cut += 1 + cut/200 {
			_, _, err := newFrameReader(bytes.NewReader(whole[:cut]), bufSize, allKinds...).next()
			if err != io.ErrUnexpectedEOF {
				t.Fatalf("%d of %d bytes: %v", cut, len(whole), err)
			}
		}
	}
}

func TestChangedFramesAreNoFrames(t *testing.T) {
	whole := encodeFrame(kindDone, []byte("a reason"))
	for i := range whole {
		for bit := range 8 {
			b := slices.Clone(whole)
			b[i] ^= 1 << bit
			_, _, err := newFrameReader(bytes.NewReader(b), bufSize, allKinds...).next()
			if !errors.Is(err, errFrame) && err != io.ErrUnexpectedEOF { // a greater length lacks bytes
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
}

func TestFramesThatAreTooLongOrUnexpectedAreRefusedByTheirHead(t *testing.T) {
	for _, k := range allKinds {
		head := encodeFrame(k, nil)[:frameHead]
		le.PutUint32(head, maxPayload[k]+1)
		r := newFrameReader(bytes.NewReader(head), bufSize, allKinds...)
		if _, _, err := r.next(); !errors.Is(err, errFrame) {
			t.Errorf("kind %d with a byte too many: %v", k, err)
		}
		others := slices.DeleteFunc(slices.Clone(allKinds), func(o kind) bool { return o == k })
		r = newFrameReader(bytes.NewReader(encodeFrame(k, nil)), bufSize, others...)
		if _, _, err := r.next(); !errors.Is(err, errFrame) {
			t.Errorf("kind %d where it may not come: %v", k, err)
		}
	}
	r := newFrameReader(bytes.NewReader(encodeFrame(kinds, nil)), bufSize, allKinds...)
	if _, _, err := r.next(); !errors.Is(err, errFrame) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// A peer that announces 40 MiB and sends little makes the reader take little.
func TestMemoryIsTakenAsBytesArrive(t *testing.T) {
	whole := encodeFrame(kindMessage, make([]byte, MaxMessage))
	for _, have := range []int{frameHead, 1000, 200_000, 5 << 20} {
		r := newFrameReader(bytes.NewReader(whole[:have]), bufSize, kindMessage)
		if _, _, err := r.next(); err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
		if limit := 3*have + 2*bufSize; cap(r.large) > limit {
			t.Errorf("%d bytes came, and %d are taken", have, cap(r.large))
		}
	}
}

func TestTheMemoryOfALargeFrameIsGivenBack(t *testing.T) {
	b := append(encodeFrame(kindMessage, make([]byte, 8<<20)), encodeFrame(kindPulse, nil)...)
	r := newFrameReader(bytes.NewReader(b), bufSize, kindMessage, kindPulse)
	for range 2 {
		if _, _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.large) > keepLarge {
		t.Errorf("%d bytes are kept", cap(r.large))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(append(encodeFrame(kindPulse, nil), encodeFrame(kindRequest, []byte("{}"))...))
	f.Add(encodeFrame(kindMessage, make([]byte, 100_000))[:1000])
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newFrameReader(bytes.NewReader(b), bufSize, allKinds...)
		var again []byte
		for {
			k, payload, err := r.next()
			if err != nil {
				break
			}
			again = append(again, encodeFrame(k, payload)...)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("%x was read as %x", b, again)
		}
		if cap(r.large) > 3*len(b)+2*bufSize {
			t.Fatalf("%d bytes came, and %d are taken", len(b), cap(r.large))
		}
	})
}

var me, you = &node{self: member.Member{ID: 1}}, &node{self: member.Member{ID: 2}}

// samples are messages of all kinds that cross, as raft makes them.
func samples() []*raftpb.Message {
	var ms []*raftpb.Message
	for k, ok := range mayCross {
		if ok {
			m := message(raftpb.MessageType(k), me, you)
			ms = append(ms, m)
			m = proto.CloneOf(m)
			m.Context, m.Reject, m.RejectHint, m.LogTerm = []byte("a context"), new(true), new(uint64(77)), new(uint64(2))
			ms = append(ms, m)
		}
	}
	ms = append(ms, appendOf(me, you, 9, 10), appendOf(me, you, 9, 0), appendOf(me, you, 9, 1, 0, 100_000, 3), appendOf(me, you, 0, 16<<10))
	mixed := appendOf(me, you, 9, 4, 5)
	mixed.Entries[0].Type = raftpb.EntryConfChangeV2.Enum()
	mixed.Entries[1].Term = new(uint64(5))
	snap := message(raftpb.MsgSnap, me, you)
	snap.Snapshot = &raftpb.Snapshot{
		Data:     []byte("data"),
		Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(8)), Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}},
	}
	return append(ms, mixed, snap)
}

func encodeMessage(t testing.TB, m *raftpb.Message) []byte {
	t.Helper()
	w := &bytes.Buffer{}
	f := newFrameWriter(w, bufSize)
	if err := f.message(m); err != nil {
		t.Fatal(err)
	}
	_ = f.w.Flush()
	_, payload, err := newFrameReader(bytes.NewReader(w.Bytes()), bufSize, kindMessage).next()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(payload)
}

// sameMessage compares by what raft reads: a number that is not there is zero.
func sameMessage(a, b *raftpb.Message) bool {
	ok := a.GetType() == b.GetType() && a.GetTo() == b.GetTo() && a.GetFrom() == b.GetFrom() && a.GetTerm() == b.GetTerm() &&
		a.GetLogTerm() == b.GetLogTerm() && a.GetIndex() == b.GetIndex() && a.GetCommit() == b.GetCommit() && a.GetReject() == b.GetReject() &&
		a.GetRejectHint() == b.GetRejectHint() && bytes.Equal(a.GetContext(), b.GetContext()) && proto.Equal(a.GetSnapshot(), b.GetSnapshot()) &&
		len(a.GetEntries()) == len(b.GetEntries())
	for i := range a.GetEntries() {
		x, y := a.GetEntries()[i], b.GetEntries()[min(i, len(b.GetEntries())-1)]
		ok = ok && x.GetIndex() == y.GetIndex() && x.GetTerm() == y.GetTerm() && x.GetType() == y.GetType() && bytes.Equal(x.GetData(), y.GetData())
	}
	return ok
}

func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	for _, m := range samples() {
		p := encodeMessage(t, m)
		if m.GetType() != raftpb.MsgSnap && len(p) != messageSize(m) {
			t.Errorf("%v has %d bytes, and %d were expected", m, len(p), messageSize(m))
		}
		got, err := decodeMessage(p)
		clear(p) // nothing of it is kept
		if err != nil || !sameMessage(m, got) {
			t.Errorf("%v\nwas read as\n%v, %v", m, got, err)
		}
	}
}

// Appending to the data of an entry must not reach into that of the next one.
func TestEntriesDoNotReachIntoEachOther(t *testing.T) {
	m, err := decodeMessage(encodeMessage(t, appendOf(me, you, 9, 4, 4)))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(m.Entries[0].Data, "xxxx"...)
	if !bytes.Equal(m.Entries[1].Data, bytes.Repeat([]byte{11}, 4)) {
		t.Fatalf("the second entry became %q", m.Entries[1].Data)
	}
}

func TestMessagesThatNoMemberSendsAreRefused(t *testing.T) {
	base := encodeMessage(t, appendOf(me, you, 9, 4, 5))
	heartbeat := encodeMessage(t, message(raftpb.MsgHeartbeat, me, you))
	for name, change := range map[string]func(b []byte) []byte{
		"a kind within a node": func(b []byte) []byte { b[0] = byte(raftpb.MsgHup); return b },
		"a proposal":           func(b []byte) []byte { b[0] = byte(raftpb.MsgProp); return b },
		"a forwarded read":     func(b []byte) []byte { b[0] = byte(raftpb.MsgReadIndex); return b },
		"an unknown kind":      func(b []byte) []byte { b[0] = 99; return b },
		"unknown flags":        func(b []byte) []byte { b[1] = 2; return b },
		"padding":              func(b []byte) []byte { b[3] = 1; return b },
		"entries of a vote":    func(b []byte) []byte { b[0] = byte(raftpb.MsgVote); return b },
		"no term":              func(b []byte) []byte { le.PutUint64(b[24:], 0); return b },
		"a huge index":         func(b []byte) []byte { le.PutUint64(b[40:], 1<<63); return b },
		"a huge context":       func(b []byte) []byte { le.PutUint32(b[64:], 1<<31); return b },
		"a snapshot":           func(b []byte) []byte { le.PutUint32(b[68:], 4); return b },
		"many entries":         func(b []byte) []byte { le.PutUint32(b[4:], 1<<31); return b },
		"fewer entries":        func(b []byte) []byte { le.PutUint32(b[4:], 1); return b },
		"a gap":                func(b []byte) []byte { le.PutUint64(b[72:], 11); return b },
		"an older term":        func(b []byte) []byte { le.PutUint64(b[80:], 2); return b },
		"a term to come":       func(b []byte) []byte { le.PutUint64(b[80:], 6); return b },
		"a huge entry":         func(b []byte) []byte { le.PutUint32(b[88:], 1<<31); return b },
		"an unknown entry":     func(b []byte) []byte { b[92] = 3; return b },
		"entry padding":        func(b []byte) []byte { b[95] = 1; return b },
		"a byte more":          func(b []byte) []byte { return append(b, 0) },
		"a byte less":          func(b []byte) []byte { return b[:len(b)-1] },
		"half a head":          func(b []byte) []byte { return b[:messageHead/2] },
		"bytes behind":         func([]byte) []byte { return append(heartbeat, 0) },
		"a snapshot of nothing": func([]byte) []byte {
			b := slices.Clone(heartbeat)
			b[0] = byte(raftpb.MsgSnap)
			return b
		},
		"a snapshot that is none": func([]byte) []byte {
			b := append(slices.Clone(heartbeat), 0xff, 0xff)
			b[0] = byte(raftpb.MsgSnap)
			le.PutUint32(b[68:], 2)
			return b
		},
	} {
		if m, err := decodeMessage(change(slices.Clone(base))); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

func TestTheLargestEntryFitsAFrame(t *testing.T) {
	m := appendOf(me, you, 1, entry.MaxSize)
	if size := messageSize(m); size > MaxMessage {
		t.Fatalf("%d bytes", size)
	}
	if err := newFrameWriter(io.Discard, bufSize).message(m); err != nil {
		t.Fatal(err)
	}
	if err := newFrameWriter(io.Discard, bufSize).message(appendOf(me, you, 1, MaxMessage)); err == nil {
		t.Fatal("a message was written that no peer takes")
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range samples() {
		f.Add(encodeMessage(f, m))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := decodeMessage(p)
		if err != nil {
			return
		}
		again, err := decodeMessage(encodeMessage(t, m))
		if err != nil || !sameMessage(m, again) {
			t.Fatalf("%x was read as\n%v, and this as\n%v, %v", p, m, again, err)
		}
		if m.GetType() != raftpb.MsgSnap && !bytes.Equal(encodeMessage(t, m), p) {
			t.Fatalf("%x is not how this is written:\n%v", p, m)
		}
	})
}
