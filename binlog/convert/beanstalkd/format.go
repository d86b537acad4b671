package beanstalkd

import (
	"bytes"
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

// Job is a job's record of version 7, field by field. Times are in nanoseconds, in version
// 5 in microseconds.
type Job struct {
	ID       uint64
	Pri      uint32
	_        uint32
	Delay    int64
	TTR      int64
	BodySize int32 // with the CR LF at its end
	_        uint32
	Created  int64 // since 1970
	Deadline int64 // since 1970; of a delayed job
	Reserves uint32
	Timeouts uint32
	Releases uint32
	Buries   uint32
	Kicks    uint32
	State    State
	_        [3]byte
}

const (
	jobSize7 = 80
	jobSize5 = 77
)

var le = binary.LittleEndian

// maxSeconds is the longest delay or ttr in nanoseconds: the protocol has 32 bits
// of seconds.
const maxSeconds = math.MaxUint32 * int64(1e9)

// maxID is the greatest id that is believed. No server has counted that far, and the one
// that goes on from it needs ids too.
const maxID = 1<<62 - 1

// decodeJob reads a record, of which version 5 leaves out the end, and reports what is wrong
// with it, or "".
func decodeJob(b []byte, version int, j *Job) string {
	var whole [jobSize7]byte
	copy(whole[:], b)
	if _, err := binary.Decode(whole[:], le, j); err != nil {
		panic(err)
	}
	if version == Version5 {
		for _, t := range []*int64{&j.Delay, &j.TTR, &j.Created, &j.Deadline} {
			if *t < 0 || *t > math.MaxInt64/1000 {
				*t = -1
			} else {
				*t *= 1000
			}
		}
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
	r := *j
	r.BodySize = bodySize
	b, err := binary.Append(b, le, &r)
	if err != nil {
		panic(err)
	}
	return b
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

// ValidTube reports whether a tube's name is one that clients can use.
func ValidTube(name []byte) bool {
	return len(name) > 0 && len(name) <= MaxTube && name[0] != '-' && len(bytes.Trim(name, tubeBytes)) == 0
}

const tubeBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+/;.$_()"
