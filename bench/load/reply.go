package load

import "bytes"

type replyKind uint8

const (
	replyGarbage replyKind = iota // not a line of the protocol
	replyInserted
	replyReserved
	replyDeleted
	replyReleased
	replyBuried
	replyKicked
	replyTouched
	replyFound
	replyOK
	replyUsing
	replyWatching
	replyPaused
	replyNotFound
	replyTimedOut
	replyDeadlineSoon
	replyAuthenticated
	replyOther // a known error line
)

// A reply is one reply of the server. Its slices alias the input and hold until the next parse.
type reply struct {
	kind replyKind
	id   uint64 // of INSERTED, RESERVED, FOUND and of BURIED after a put; the count of KICKED and WATCHING
	line []byte // without CRLF
	body []byte // of RESERVED, FOUND and OK
}

var plainReplies = map[string]replyKind{
	"RELEASED": replyReleased, "TOUCHED": replyTouched, "PAUSED": replyPaused, "NOT_FOUND": replyNotFound,
	"TIMED_OUT": replyTimedOut, "DEADLINE_SOON": replyDeadlineSoon, "AUTHENTICATED": replyAuthenticated,
	"NOT_IGNORED": replyOther, "UNAUTHORIZED": replyOther, "BAD_FORMAT": replyOther, "UNKNOWN_COMMAND": replyOther,
	"OUT_OF_MEMORY": replyOther, "INTERNAL_ERROR": replyOther, "EXPECTED_CRLF": replyOther, "JOB_TOO_BIG": replyOther,
	"DRAINING": replyOther,
}

// longestLine bounds a reply line: USING with a name of 200 bytes is the longest of the protocol.
const longestLine = 256

// parseReply takes one reply from the front of p. It returns its length, or 0 when p holds only a part of it; want is
// then the least number of bytes that can hold the whole.
func parseReply(p []byte, r *reply) (n, want int) {
	head := p
	if len(head) > longestLine {
		head = head[:longestLine]
	}
	i := bytes.IndexByte(head, '\n')
	if i < 0 {
		if len(p) >= longestLine {
			*r = reply{line: head}
			return len(p), 0
		}
		return 0, len(p) + 1
	}
	r.id, r.body = 0, nil
	if i == 0 || p[i-1] != '\r' {
		r.kind, r.line = replyGarbage, p[:i]
		return i + 1, 0
	}
	line := p[:i-1]
	r.line = line
	word, rest := line, []byte(nil)
	if sp := bytes.IndexByte(line, ' '); sp >= 0 {
		word, rest = line[:sp], line[sp+1:]
	}
	ok := false
	switch string(word) {
	case "INSERTED":
		r.kind = replyInserted
		r.id, ok = parseNumber(rest)
	case "RESERVED", "FOUND":
		r.kind = replyReserved
		if word[0] == 'F' {
			r.kind = replyFound
		}
		sp := bytes.IndexByte(rest, ' ')
		if sp < 0 {
			break
		}
		if r.id, ok = parseNumber(rest[:sp]); !ok {
			break
		}
		return takeBody(p, i+1, rest[sp+1:], r)
	case "OK":
		r.kind = replyOK
		return takeBody(p, i+1, rest, r)
	case "KICKED":
		r.kind = replyKicked
		if rest == nil { // of kick-job
			r.id, ok = 1, true
			break
		}
		r.id, ok = parseNumber(rest)
	case "BURIED":
		r.kind = replyBuried
		ok = rest == nil
		if !ok {
			r.id, ok = parseNumber(rest)
		}
	case "WATCHING":
		r.kind = replyWatching
		r.id, ok = parseNumber(rest)
	case "USING":
		r.kind, ok = replyUsing, len(rest) > 0
	case "DELETED": // ahead of the table, because there are so many
		r.kind, ok = replyDeleted, rest == nil
	default:
		r.kind, ok = plainReplies[string(line)]
	}
	if !ok {
		r.kind = replyGarbage
	}
	return i + 1, 0
}

// takeBody finishes a reply whose line ends at p[at] and announces a body of size bytes.
func takeBody(p []byte, at int, size []byte, r *reply) (n, want int) {
	length, ok := parseNumber(size)
	if !ok || length > 1<<31 {
		r.kind = replyGarbage
		return at, 0
	}
	end := at + int(length)
	if len(p) < end+2 {
		return 0, end + 2
	}
	r.body = p[at:end]
	if p[end] != '\r' || p[end+1] != '\n' {
		r.kind = replyGarbage
	}
	return end + 2, 0
}

// parseNumber reads a decimal number of up to 19 digits.
func parseNumber(p []byte) (v uint64, ok bool) {
	if len(p) == 0 || len(p) > 19 {
		return 0, false
	}
	for _, c := range p {
		if c-'0' > 9 {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return v, true
}
