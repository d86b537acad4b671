package beanstalkd

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// Versions of the format.
const (
	Version7 = 7
	Version5 = 5
)

// State is a job's state, with the values of the format.
type State uint8

// The states. A deleted job has Invalid.
const (
	Invalid State = iota
	Ready
	Reserved
	Buried
	Delayed
	numStates
)

// MaxTube is the longest name of a tube in bytes.
const MaxTube = 200

// Job is a job's record. Times are in nanoseconds.
type Job struct {
	ID       uint64
	Pri      uint32
	Delay    int64
	TTR      int64
	BodySize int32 // with the CR LF at its end
	Created  int64 // since 1970
	Deadline int64 // since 1970; of a delayed job
	Reserves uint32
	Timeouts uint32
	Releases uint32
	Buries   uint32
	Kicks    uint32
	State    State
}

const (
	jobSize7 = 80
	jobSize5 = 77
)

var le = binary.LittleEndian

// maxSeconds is the longest delay or ttr in nanoseconds: the protocol has 32 bits
// of seconds.
const maxSeconds = math.MaxUint32 * int64(1e9)

// maxID is the greatest id that is believed. Nobody gets that far by counting, and
// who goes on from it is to have ids left.
const maxID = 1<<62 - 1

// decodeJob reports what is wrong with a record, or "".
func decodeJob(b []byte, version int, j *Job) string {
	scale := uint64(1)
	if version == Version5 {
		scale = 1000 // microseconds
	}
	ns := func(b []byte) int64 {
		v := le.Uint64(b)
		if v > math.MaxInt64/scale {
			return -1
		}
		return int64(v * scale)
	}
	*j = Job{
		ID:       le.Uint64(b),
		Pri:      le.Uint32(b[8:]),
		Delay:    ns(b[16:]),
		TTR:      ns(b[24:]),
		BodySize: int32(le.Uint32(b[32:])),
		Created:  ns(b[40:]),
		Deadline: ns(b[48:]),
		Reserves: le.Uint32(b[56:]),
		Timeouts: le.Uint32(b[60:]),
		Releases: le.Uint32(b[64:]),
		Buries:   le.Uint32(b[68:]),
		Kicks:    le.Uint32(b[72:]),
		State:    State(b[76]),
	}
	switch {
	case j.ID > maxID:
		return "a job with an impossible id"
	case j.State >= numStates:
		return "a job in an unknown state"
	case j.BodySize < 2:
		return "a job whose body is shorter than its end"
	case j.Delay < 0 || j.Delay > maxSeconds || j.Delay%1e9 != 0:
		return "a job with an impossible delay"
	case j.TTR <= 0 || j.TTR > maxSeconds || j.TTR%1e9 != 0:
		return "a job with an impossible time to run"
	case j.Created < 0 || j.Deadline < 0:
		return "a job with an impossible time"
	}
	return ""
}

// AppendVersion appends what starts a file of version 7.
func AppendVersion(b []byte) []byte { return le.AppendUint32(b, Version7) }

// AppendFull appends a full record of version 7. The body is without its CR LF,
// and j.BodySize is not used.
func AppendFull(b []byte, j *Job, tube string, body []byte) []byte {
	b = le.AppendUint32(b, uint32(len(tube)))
	b = append(b, tube...)
	b = appendJob(b, j, int32(len(body)+2))
	b = append(b, body...)
	return append(b, '\r', '\n')
}

// AppendShort appends a record of version 7 that replaces a job's state.
func AppendShort(b []byte, j *Job) []byte {
	return appendJob(le.AppendUint32(b, 0), j, j.BodySize)
}

// FullSize is the length of a full record.
func FullSize(tube string, body int) int64 { return 4 + int64(len(tube)) + jobSize7 + int64(body) + 2 }

func appendJob(b []byte, j *Job, bodySize int32) []byte {
	b = le.AppendUint64(b, j.ID)
	b = le.AppendUint32(b, j.Pri)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(j.Delay))
	b = le.AppendUint64(b, uint64(j.TTR))
	b = le.AppendUint32(b, uint32(bodySize))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(j.Created))
	b = le.AppendUint64(b, uint64(j.Deadline))
	b = le.AppendUint32(b, j.Reserves)
	b = le.AppendUint32(b, j.Timeouts)
	b = le.AppendUint32(b, j.Releases)
	b = le.AppendUint32(b, j.Buries)
	b = le.AppendUint32(b, j.Kicks)
	return append(b, byte(j.State), 0, 0, 0)
}

// FileName is the name of the n-th file.
func FileName(n int) string { return "binlog." + strconv.Itoa(n) }

// FileNumber is the number in a file's name. It reports false for a name that
// beanstalkd would not open.
func FileNumber(name string) (int, bool) {
	s, ok := strings.CutPrefix(name, "binlog.")
	n, err := strconv.ParseUint(s, 10, 31)
	if !ok || err != nil || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return int(n), true
}

// ValidTube tells whether a tube's name is one that clients can use.
func ValidTube(name []byte) bool {
	if len(name) == 0 || len(name) > MaxTube || name[0] == '-' {
		return false
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-+/;.$_()", c) >= 0:
		default:
			return false
		}
	}
	return true
}
