package codec

import "strconv"

// The replies that say the same every time.
const (
	ReplyBuried         = "BURIED\r\n"
	ReplyDeadlineSoon   = "DEADLINE_SOON\r\n"
	ReplyDeleted        = "DELETED\r\n"
	ReplyDraining       = "DRAINING\r\n"
	ReplyExpectedCRLF   = "EXPECTED_CRLF\r\n"
	ReplyJobTooBig      = "JOB_TOO_BIG\r\n"
	ReplyKicked         = "KICKED\r\n" // to a kick-job or kick-connection
	ReplyNotFound       = "NOT_FOUND\r\n"
	ReplyNotIgnored     = "NOT_IGNORED\r\n"
	ReplyPaused         = "PAUSED\r\n"
	ReplyReleased       = "RELEASED\r\n"
	ReplyTimedOut       = "TIMED_OUT\r\n"
	ReplyTouched        = "TOUCHED\r\n"
	ReplyBadFormat      = "BAD_FORMAT\r\n"
	ReplyUnknownCommand = "UNKNOWN_COMMAND\r\n"
	ReplyOutOfMemory    = "OUT_OF_MEMORY\r\n"
	ReplyInternalError  = "INTERNAL_ERROR\r\n"

	ReplyDLQSet      = "DLQ_SET\r\n"      // to a set-dlq
	ReplyTubeSet     = "TUBE_SET\r\n"     // to a set-tube
	ReplyMoved       = "MOVED\r\n"        // to a move-job
	ReplyNotDraining = "NOT_DRAINING\r\n" // to an undrain
	// To auth, which is no command of beanstalkd's.
	ReplyAuthenticated = "AUTHENTICATED\r\n"
	ReplyUnauthorized  = "UNAUTHORIZED\r\n"
)

// AppendInserted appends the reply to a put that made the job id.
func AppendInserted(b []byte, id uint64) []byte {
	return appendNumber(append(b, "INSERTED "...), id)
}

// AppendDuplicate appends the reply to a put whose unique key is that of the job id, which is
// in a state such as READY.
func AppendDuplicate(b []byte, id uint64, state string) []byte {
	return append(appendDuplicate(b, id, state), crlf...)
}

// AppendRaised is AppendDuplicate for a put that has given that job its own priority pri,
// which was more urgent.
func AppendRaised(b []byte, id uint64, state string, pri uint32) []byte {
	return appendNumber(append(appendDuplicate(b, id, state), ' '), uint64(pri))
}

func appendDuplicate(b []byte, id uint64, state string) []byte {
	b = strconv.AppendUint(append(b, "INSERTED "...), id, 10)
	return append(append(b, ' '), state...)
}

// AppendCount appends the reply to a command that has changed n jobs: a word such as
// KICKED, and n.
func AppendCount(b []byte, word string, n uint64) []byte {
	return appendNumber(append(append(b, word...), ' '), n)
}

// AppendWatching appends the reply to a watch or ignore of a client that then
// watches n tubes.
func AppendWatching(b []byte, n uint64) []byte {
	return appendNumber(append(b, "WATCHING "...), n)
}

// AppendUsing appends the reply that names the used tube.
func AppendUsing[Name string | []byte](b []byte, tube Name) []byte {
	b = append(b, "USING "...)
	b = append(b, tube...)
	return append(b, crlf...)
}

// AppendMode appends the reply to a reserve-mode.
func AppendMode(b []byte, m Mode, info, abort bool) []byte {
	b = append(append(b, "USING "...), modeNames[m]...)
	if info {
		b = append(b, " info"...)
	}
	if abort {
		b = append(b, " abort"...)
	}
	return append(b, crlf...)
}

// AppendReservedLine appends the first line of the reply that hands out the job id.
// Its body of size bytes and CR LF follow.
func AppendReservedLine(b []byte, id uint64, size int) []byte {
	return appendJobLine(append(b, "RESERVED "...), id, size)
}

// A JobInfo is what a client is told of each job that it reserves, if it has asked for that.
type JobInfo struct {
	Tube               string
	Pri, TTR, Attempts uint32
	Age                uint64 // whole seconds
	// The keys of its tags, "" for one that it has not.
	Unique, Limited, Group, Fair string
}

// AppendReservedInfoLine is AppendReservedLine, which tells of i as well.
func AppendReservedInfoLine(b []byte, id uint64, size int, i *JobInfo) []byte {
	b = strconv.AppendUint(append(b, "RESERVED "...), id, 10)
	b = strconv.AppendInt(append(b, ' '), int64(size), 10)
	b = append(append(b, " tube:"...), i.Tube...)
	b = strconv.AppendUint(append(b, " pri:"...), uint64(i.Pri), 10)
	b = strconv.AppendUint(append(b, " age:"...), i.Age, 10)
	b = strconv.AppendUint(append(b, " ttr:"...), uint64(i.TTR), 10)
	b = strconv.AppendUint(append(b, " attempts:"...), uint64(i.Attempts), 10)
	b = appendTag(b, " idp:", i.Unique)
	b = appendTag(b, " con:", i.Limited)
	b = appendTag(b, " grp:", i.Group)
	b = appendTag(b, " fair:", i.Fair)
	return append(b, crlf...)
}

func appendTag(b []byte, tag, key string) []byte {
	if key == "" {
		return b
	}
	return append(append(b, tag...), key...)
}

// AppendFoundLine appends the first line of the reply that shows the job id. Its
// body of size bytes and CR LF follow.
func AppendFoundLine(b []byte, id uint64, size int) []byte {
	return appendJobLine(append(b, "FOUND "...), id, size)
}

// AppendOKLine appends the first line of the reply that carries statistics or a
// list. Its data of size bytes and CR LF follow.
func AppendOKLine(b []byte, size int) []byte {
	return appendNumber(append(b, "OK "...), uint64(size))
}

// AppendOK appends the reply that carries statistics or a list.
func AppendOK(b, data []byte) []byte {
	b = AppendOKLine(b, len(data))
	b = append(b, data...)
	return append(b, crlf...)
}

func appendJobLine(b []byte, id uint64, size int) []byte {
	b = strconv.AppendUint(b, id, 10)
	b = append(b, ' ')
	return appendNumber(b, uint64(size))
}

func appendNumber(b []byte, n uint64) []byte {
	return append(strconv.AppendUint(b, n, 10), crlf...)
}
