package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/sealed"
	"trellis/binlog/spill"
)

// Meta is what a snapshot says of itself, all as of its entry.
type Meta struct {
	Index, Term uint64            // of the snapshot's entry: the last one that it contains
	ConfState   *raftpb.ConfState // not nil; nobody changes it
	Members     []member.Member   // those of ConfState, and what is known of others

	BatchTerm uint64 // of the last batch that was applied, 0 before the first
	Sequence  uint64 // of that batch
	Stamp     int64  // cluster time, nanoseconds since 1970
	Highest   uint64 // no greater id was used
	Decided   uint64 // no id below this one is going to become a job; at most Highest + 1
	Version   uint32 // of entries: the greatest that the members may write

	// Set by Writer.Finish.
	Records uint64 // records of jobs, and settings, in the segments
	Fulls   uint64 // full records among them: no more jobs are alive, but there may be fewer
	Bytes   int64  // size of the segments, and of the file of jobs whose bodies are in body files

	// Files are the body files in which jobs of the snapshot have their bodies; nil if all bodies are in the segments.
	Files []spill.File

	jobs     sealed.Segment   // the file of these jobs; of size 0 without Files
	segments []sealed.Segment // in order
	sum      uint32           // of the encoded Meta
}

// Entry names the snapshot's entry.
func (m *Meta) Entry() entrylog.EntryID { return entrylog.EntryID{Index: m.Index, Term: m.Term} }

// Raft is what raft knows of the snapshot.
func (m *Meta) Raft() *raftpb.SnapshotMetadata {
	return &raftpb.SnapshotMetadata{Index: &m.Index, Term: &m.Term, ConfState: m.ConfState}
}

const (
	metaMagic     = "TRELSNP\n"
	formatVersion = 1 // also of the pointer
	filesVersion  = 2 // of a description with body files

	metaFixed   = 120 // bytes before the lists
	maxMeta     = 1 << 20
	segmentItem = 12
	fileItem    = 32
	memberItem  = 20 // without name and address

	// segmentSize is where a segment ends, unless a single record is larger.
	segmentSize = 16 << 20

	// MaxSegments is the greatest number of segments that a snapshot has.
	MaxSegments = 1 << 16

	minFile = record.HeaderSize + record.SmallSize
	maxFile = record.HeaderSize + entry.MaxSize + 2*record.SmallSize
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func sum(start uint32, b []byte) uint32 { return crc32.Update(start, castagnoli, b) }

// wrong tells what is impossible about a Meta, or "". Memory for it was bounded by the
// length of what it was read from.
func (m *Meta) wrong() string {
	switch {
	case m.Index == 0 || m.Term == 0:
		return fmt.Sprintf("entry %d of term %d", m.Index, m.Term)
	case m.BatchTerm > m.Term:
		return fmt.Sprintf("a batch of term %d in term %d", m.BatchTerm, m.Term)
	case m.Decided > m.Highest && m.Decided-m.Highest > 1:
		return fmt.Sprintf("ids below %d are decided, but the highest is %d", m.Decided, m.Highest)
	case len(m.ConfState.GetVoters()) == 0:
		return "no voters"
	case len(m.Members) > maxMembers:
		return fmt.Sprintf("%d members", len(m.Members))
	}
	for _, ids := range lists(m.ConfState) {
		if len(ids) > maxMembers || slices.Contains(ids, 0) {
			return fmt.Sprintf("a list of %d members, or one without an id", len(ids))
		}
	}
	for i, x := range m.Members {
		if x.ID == 0 || slices.ContainsFunc(m.Members[:i], func(o member.Member) bool { return o.ID == x.ID }) {
			return "two members with the same id, or one without"
		}
		if err := errors.Join(member.CheckName(x.Name), member.CheckAddr(x.Addr)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// maxMembers leaves room for those that a change adds before it removes others.
const maxMembers = 2 * member.MaxMembers

// wrongSegments tells what is impossible about the segments, or "".
func (m *Meta) wrongSegments() string {
	total := m.jobs.Size
	for _, s := range m.segments {
		if s.Size < minFile || s.Size > maxFile || s.Size%8 != 0 {
			return fmt.Sprintf("a segment of %d bytes", s.Size)
		}
		total += s.Size
	}
	switch {
	case len(m.segments) == 0 || len(m.segments) > MaxSegments:
		return fmt.Sprintf("%d segments", len(m.segments))
	case total != m.Bytes:
		return fmt.Sprintf("files of %d bytes in all, but it says %d", total, m.Bytes)
	case m.Fulls > m.Records || m.Records > uint64(total)/record.SmallSize:
		return fmt.Sprintf("%d records, %d of them full, in %d bytes", m.Records, m.Fulls, total)
	}
	return m.wrongFiles()
}

// wrongFiles tells what is impossible about the body files, or "".
func (m *Meta) wrongFiles() string {
	if (len(m.Files) == 0) != (m.jobs.Size == 0) || m.jobs.Size < 0 {
		return fmt.Sprintf("%d body files, and %d bytes of jobs that have their bodies there", len(m.Files), m.jobs.Size)
	}
	last := uint32(0)
	for _, f := range m.Files {
		if f.Number <= last || f.Size < minFile || f.Bodies < 0 || f.Bodies > f.Size {
			return fmt.Sprintf("body file %d of %d bytes behind file %d", f.Number, f.Size, last)
		}
		last = f.Number
	}
	return ""
}

// lists are the lists of a ConfState in the order in which they are written.
func lists(c *raftpb.ConfState) [4][]uint64 {
	return [4][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()}
}

// encode returns the bytes of the file "meta" and notes their checksum.
func (m *Meta) encode() []byte {
	b := make([]byte, metaFixed, metaFixed+64*len(m.Members)+segmentItem*len(m.segments)+1024)
	copy(b, metaMagic)
	le.PutUint32(b[8:], formatVersion)
	for i, v := range [...]uint64{
		m.Index, m.Term, m.BatchTerm, m.Sequence, uint64(m.Stamp), m.Highest, m.Decided,
	} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[72:], m.Version)
	le.PutUint64(b[80:], m.Records)
	le.PutUint64(b[88:], m.Fulls)
	le.PutUint64(b[96:], uint64(m.Bytes))
	for i, ids := range lists(m.ConfState) {
		le.PutUint16(b[104+2*i:], uint16(len(ids)))
		for _, id := range ids {
			b = le.AppendUint64(b, id)
		}
	}
	if m.ConfState.GetAutoLeave() {
		b[112] = 1
	}
	le.PutUint16(b[114:], uint16(len(m.Members)))
	for _, x := range m.Members {
		b = le.AppendUint64(b, uint64(x.ID))
		b = le.AppendUint64(b, uint64(x.Incarnation))
		b = le.AppendUint16(b, uint16(len(x.Name)))
		b = le.AppendUint16(b, uint16(len(x.Addr)))
		b = append(append(b, x.Name...), x.Addr...)
	}
	le.PutUint32(b[116:], uint32(len(m.segments)))
	for _, s := range m.segments {
		b = le.AppendUint64(b, uint64(s.Size))
		b = le.AppendUint32(b, s.Sum)
	}
	if len(m.Files) > 0 {
		le.PutUint32(b[8:], filesVersion)
		le.PutUint32(b[76:], uint32(len(m.Files)))
		b = le.AppendUint32(le.AppendUint64(b, uint64(m.jobs.Size)), m.jobs.Sum)
	}
	for _, f := range m.Files {
		for _, v := range [...]uint32{f.Number, f.Seed, f.Sum, f.Records} {
			b = le.AppendUint32(b, v)
		}
		b = le.AppendUint64(le.AppendUint64(b, uint64(f.Size)), uint64(f.Bodies))
	}
	le.PutUint32(b[12:], uint32(len(b)+4))
	m.sum = sum(0, b)
	return le.AppendUint32(b, m.sum)
}

// metaLength is the length of an encoded Meta that starts with b, of which there are 16
// bytes.
func metaLength(b []byte) (int, error) {
	n := le.Uint32(b[12:])
	switch {
	case string(b[:8]) != metaMagic:
		return 0, errors.New("not the description of a snapshot")
	case n < metaFixed+4 || n > maxMeta:
		return 0, fmt.Errorf("a description of %d bytes", n)
	}
	return int(n), nil
}

// decode reads an encoded Meta, or tells what is wrong with it and leaves m as it was.
// ErrVersion is the one error that is no damage.
func (m *Meta) decode(b []byte) error {
	if len(b) < metaFixed+4 {
		return fmt.Errorf("%d bytes are too short for the description of a snapshot", len(b))
	}
	n, err := metaLength(b)
	if err != nil {
		return err
	}
	if n != len(b) {
		return fmt.Errorf("%d bytes, but it says that it has %d", len(b), n)
	}
	check, version := le.Uint32(b[n-4:]), le.Uint32(b[8:])
	switch {
	case sum(0, b[:n-4]) != check:
		return errors.New("the checksum is wrong")
	case version != formatVersion && version != filesVersion:
		return ErrVersion
	case (le.Uint32(b[76:]) > 0) != (version == filesVersion) || b[112] > 1 || b[113] != 0:
		return errors.New("impossible fields")
	}
	d := Meta{
		Index: le.Uint64(b[16:]), Term: le.Uint64(b[24:]), BatchTerm: le.Uint64(b[32:]), Sequence: le.Uint64(b[40:]),
		Stamp: int64(le.Uint64(b[48:])), Highest: le.Uint64(b[56:]), Decided: le.Uint64(b[64:]), Version: le.Uint32(b[72:]),
		Records: le.Uint64(b[80:]), Fulls: le.Uint64(b[88:]), Bytes: int64(le.Uint64(b[96:])), sum: check,
	}
	if !d.decodeLists(b[:n-4]) {
		return errors.New("the lists do not fill the description")
	}
	for _, wrong := range []string{d.wrong(), d.wrongSegments()} {
		if wrong != "" {
			return errors.New("impossible: " + wrong)
		}
	}
	*m = d
	return nil
}

// decodeLists reads what follows the fixed part, and reports whether it is as long as it
// says.
func (m *Meta) decodeLists(b []byte) bool {
	rest := b[metaFixed:]
	take := func(n int) []byte {
		if n > len(rest) {
			rest = nil
			return nil
		}
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	c := &raftpb.ConfState{}
	for i, to := range []*[]uint64{&c.Voters, &c.Learners, &c.VotersOutgoing, &c.LearnersNext} {
		for range le.Uint16(b[104+2*i:]) {
			id := take(8)
			if id == nil {
				return false
			}
			*to = append(*to, le.Uint64(id))
		}
	}
	if b[112] == 1 {
		c.AutoLeave = proto.Bool(true)
	}
	m.ConfState = c
	for range le.Uint16(b[114:]) {
		head := take(memberItem)
		if head == nil {
			return false
		}
		name, addr := int(le.Uint16(head[16:])), int(le.Uint16(head[18:]))
		text := take(name + addr)
		if text == nil {
			return false
		}
		m.Members = append(m.Members, member.Member{
			ID: member.ID(le.Uint64(head)), Incarnation: member.Incarnation(le.Uint64(head[8:])),
			Name: string(text[:name]), Addr: string(text[name:]),
		})
	}
	segments, files := int64(le.Uint32(b[116:])), int64(le.Uint32(b[76:]))
	want := segmentItem * segments
	if files > 0 {
		want += segmentItem + fileItem*files
	}
	if int64(len(rest)) != want {
		return false
	}
	segment := func() sealed.Segment {
		s := take(segmentItem)
		return sealed.Segment{Size: int64(le.Uint64(s)), Sum: le.Uint32(s[8:])}
	}
	m.segments = make([]sealed.Segment, 0, segments)
	for range segments {
		m.segments = append(m.segments, segment())
	}
	if files > 0 {
		m.jobs = segment()
	}
	for len(rest) > 0 {
		f := take(fileItem)
		m.Files = append(m.Files, spill.File{
			Number: le.Uint32(f), Seed: le.Uint32(f[4:]), Sum: le.Uint32(f[8:]), Records: le.Uint32(f[12:]),
			Size: int64(le.Uint64(f[16:])), Bodies: int64(le.Uint64(f[24:])),
		})
	}
	return true
}
