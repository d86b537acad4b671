package wire

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	messageHead = 72
	entryHead   = 24
	maxContext  = 1 << 10
	maxSnapshot = 1 << 20 // of a snapshot's metadata; its files are in the stream

	flagReject = 1
)

// mayCross tells the messages that members send each other on lanes. The others are
// within a node, or would have a follower's proposals, reads and transfers done by a
// leader that does not know for whom.
var mayCross = [...]bool{
	raftpb.MsgApp:           true,
	raftpb.MsgAppResp:       true,
	raftpb.MsgVote:          true,
	raftpb.MsgVoteResp:      true,
	raftpb.MsgPreVote:       true,
	raftpb.MsgPreVoteResp:   true,
	raftpb.MsgHeartbeat:     true,
	raftpb.MsgHeartbeatResp: true,
	raftpb.MsgTimeoutNow:    true,
}

func crosses(k raftpb.MessageType) bool { return int(k) < len(mayCross) && mayCross[k] }

// messageSize is the length of a message's payload without a snapshot.
func messageSize(m *raftpb.Message) int {
	n := messageHead + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += entryHead + len(e.GetData())
	}
	return n
}

// message writes a frame with a message. Flush is the caller's.
func (f *frameWriter) message(m *raftpb.Message) error {
	var snapshot []byte
	if m.GetType() == raftpb.MsgSnap {
		var err error
		if snapshot, err = proto.Marshal(m.GetSnapshot()); err != nil {
			return fmt.Errorf("encode a snapshot's metadata: %w", err)
		}
	}
	size := messageSize(m) + len(snapshot)
	if size > MaxMessage || len(m.GetContext()) > maxContext || len(snapshot) > maxSnapshot {
		return fmt.Errorf("a %s of %d bytes, at most %d are possible", m.GetType(), size, MaxMessage)
	}
	f.begin(kindMessage, size)
	b := f.buf[:messageHead]
	clear(b)
	b[0] = byte(m.GetType())
	if m.GetReject() {
		b[1] = flagReject
	}
	le.PutUint32(b[4:], uint32(len(m.GetEntries())))
	le.PutUint64(b[8:], m.GetTo())
	le.PutUint64(b[16:], m.GetFrom())
	le.PutUint64(b[24:], m.GetTerm())
	le.PutUint64(b[32:], m.GetLogTerm())
	le.PutUint64(b[40:], m.GetIndex())
	le.PutUint64(b[48:], m.GetCommit())
	le.PutUint64(b[56:], m.GetRejectHint())
	le.PutUint32(b[64:], uint32(len(m.GetContext())))
	le.PutUint32(b[68:], uint32(len(snapshot)))
	f.write(b)
	f.write(m.GetContext())
	f.write(snapshot)
	for _, e := range m.GetEntries() {
		b := f.buf[:entryHead]
		clear(b)
		le.PutUint64(b[0:], e.GetIndex())
		le.PutUint64(b[8:], e.GetTerm())
		le.PutUint32(b[16:], uint32(len(e.GetData())))
		b[20] = byte(e.GetType())
		f.write(b)
		f.write(e.GetData())
	}
	f.end()
	return nil
}

// decoded holds a message and what its fields point to: one allocation for all.
type decoded struct {
	m                                                  raftpb.Message
	kind                                               raftpb.MessageType
	reject                                             bool
	to, from, term, logTerm, index, commit, rejectHint uint64
	first                                              decodedEntry // the only entry, in most messages
	entries                                            [1]*raftpb.Entry
}

type decodedEntry struct {
	e           raftpb.Entry
	kind        raftpb.EntryType
	index, term uint64
}

// decodeMessage reads a message's payload, and keeps nothing of it. It refuses what no
// member sends, above all what raft would panic at.
func decodeMessage(p []byte) (*raftpb.Message, error) {
	if len(p) < messageHead {
		return nil, malformed("a message of %d bytes", len(p))
	}
	d := &decoded{
		kind: raftpb.MessageType(p[0]), reject: p[1] == flagReject,
		to: le.Uint64(p[8:]), from: le.Uint64(p[16:]), term: le.Uint64(p[24:]), logTerm: le.Uint64(p[32:]),
		index: le.Uint64(p[40:]), commit: le.Uint64(p[48:]), rejectHint: le.Uint64(p[56:]),
	}
	n, contextSize, snapshotSize := le.Uint32(p[4:]), le.Uint32(p[64:]), le.Uint32(p[68:])
	if p[1] > flagReject || p[2] != 0 || p[3] != 0 {
		return nil, malformed("unknown flags of a message")
	}
	if !crosses(d.kind) && d.kind != raftpb.MsgSnap {
		return nil, malformed("a message that members do not send: %s", d.kind)
	}
	if (n > 0 && d.kind != raftpb.MsgApp) || (snapshotSize > 0) != (d.kind == raftpb.MsgSnap) ||
		contextSize > maxContext || snapshotSize > maxSnapshot || d.term == 0 || d.index >= 1<<62 {
		return nil, malformed("a %s with what it does not have", d.kind)
	}
	rest := p[messageHead:]
	if uint64(len(rest)) < uint64(contextSize)+uint64(snapshotSize)+uint64(n)*entryHead {
		return nil, malformed("a %s of %d bytes", d.kind, len(p))
	}
	m := &d.m
	m.Type, m.To, m.From, m.Term, m.LogTerm = &d.kind, &d.to, &d.from, &d.term, &d.logTerm
	m.Index, m.Commit, m.Reject, m.RejectHint = &d.index, &d.commit, &d.reject, &d.rejectHint
	if contextSize > 0 {
		m.Context = append([]byte(nil), rest[:contextSize]...)
	}
	rest = rest[contextSize:]
	if d.kind == raftpb.MsgSnap {
		m.Snapshot = &raftpb.Snapshot{}
		if err := proto.Unmarshal(rest[:snapshotSize], m.Snapshot); err != nil {
			return nil, malformed("a snapshot's metadata: %v", err)
		}
		if md := m.Snapshot.GetMetadata(); md.GetIndex() == 0 || md.GetTerm() == 0 || md.GetTerm() > d.term {
			return nil, malformed("a snapshot of entry %d in term %d", md.GetIndex(), md.GetTerm())
		}
	}
	return m, d.decodeEntries(rest[snapshotSize:], int(n))
}

// decodeEntries reads n entries, which are all that is left. Their data share a buffer.
func (d *decoded) decodeEntries(rest []byte, n int) error {
	if n == 0 {
		if len(rest) > 0 {
			return malformed("%d bytes behind a message", len(rest))
		}
		return nil
	}
	es, ptrs := []decodedEntry(nil), d.entries[:]
	if n > 1 {
		es, ptrs = make([]decodedEntry, n), make([]*raftpb.Entry, n)
	}
	data := make([]byte, 0, len(rest)-n*entryHead)
	term := d.logTerm
	for i := range n {
		e := &d.first
		if es != nil {
			e = &es[i]
		}
		if len(rest) < entryHead {
			return malformed("entries of which the last is cut off")
		}
		e.index, e.term, e.kind = le.Uint64(rest), le.Uint64(rest[8:]), raftpb.EntryType(rest[20])
		size := le.Uint32(rest[16:])
		if uint64(len(rest)) < entryHead+uint64(size) {
			return malformed("an entry of %d bytes of which %d are there", size, len(rest)-entryHead)
		}
		if e.index != d.index+1+uint64(i) || e.term < term || e.term > d.term || e.kind > raftpb.EntryConfChangeV2 ||
			rest[21] != 0 || rest[22] != 0 || rest[23] != 0 {
			return malformed("entry %d of term %d and type %d, behind entry %d of term %d",
				e.index, e.term, e.kind, d.index+uint64(i), term)
		}
		term = e.term
		e.e.Type, e.e.Index, e.e.Term = &e.kind, &e.index, &e.term
		if size > 0 {
			data = append(data, rest[entryHead:entryHead+size]...)
			e.e.Data = data[len(data)-int(size) : len(data) : len(data)]
		}
		ptrs[i] = &e.e
		rest = rest[entryHead+size:]
	}
	if len(rest) > 0 {
		return malformed("%d bytes behind the entries", len(rest))
	}
	d.m.Entries = ptrs
	return nil
}
