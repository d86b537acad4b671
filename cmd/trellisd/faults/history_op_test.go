package faults

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Verb is what a client asks for. Its text is the command's, but for end.
type Verb string

// The commands that are checked.
const (
	Put         Verb = "put"
	Reserve     Verb = "reserve-with-timeout 0" // from the client's tube only
	ReserveJob  Verb = "reserve-job"
	Release     Verb = "release"
	Bury        Verb = "bury"
	Touch       Verb = "touch"
	KickJob     Verb = "kick-job"
	MoveJob     Verb = "move-job"
	Delete      Verb = "delete"
	Peek        Verb = "peek"
	PeekReady   Verb = "peek-ready"
	PeekDelayed Verb = "peek-delayed"
	PeekBuried  Verb = "peek-buried"
	StatsJob    Verb = "stats-job"
	Flush       Verb = "flush-tube" // the client's

	// end is no command: the server has ended a session at some time, and with it its
	// reservations.
	end Verb = "end of session"

	// serves is no command, either: another server begins to serve, which knows what is on record.
	serves Verb = "another server"
)

// ofTube reports whether a command does not name its job.
func (v Verb) ofTube() bool {
	return v == Reserve || v == PeekReady || v == PeekDelayed || v == PeekBuried || v == Flush
}

// never is the Return of a command whose outcome is not known: it may still be executed.
const never = math.MaxInt64

// Op is a command and what came of it.
type Op struct {
	Session int    // number of the connection; never used again
	Verb    Verb   //
	Tube    string // that the client uses and watches
	ID      uint64 // of the job; of one that the server chooses, from the reply
	Number  int    // of a put: names the put in the body. Puts of one number are of one unique key
	Keyed   bool   // of a put: it has a unique key, which outlives its job
	To      string // tube, of move-job
	Limit   uint32 // of a put: attempts after which the job is a dead letter; 0 is never
	Limited string // of a put: the limited key; "" if the job has none
	Most    uint32 // of a put with a limited key: jobs of the key in its tube that are reserved at a time
	Group   string // of a put: the group that the job is a member of; "" for none
	After   string // of a put: the group that has to be complete before the job is ready; "" for none

	Linger  time.Duration // of a put: how long the job stays reserved whose worker has gone; 0 is not at all
	Expires time.Duration // of a put: after which the job is not begun any more; 0 is never
	Bounds  Bounds        // of a put: those of its tube

	Late bool // nobody else does anything, and all that was due has happened

	Pri, Delay, TTR uint32 // of put; pri and delay of release; pri of bury. Seconds
	Body            string // of put, as sent; of reserve and peek, as received

	Found string // of put: in which state the job is that has its key; "" if there was none
	Reply string // its first word; "" if none has come, and whether it was executed is open
	Stats *Stats // of stats-job, when Reply is OK

	Wait time.Duration // of reserve: for a job

	place int // in the history

	Call, Return int64 // nanoseconds of one clock for the whole history; never if Reply is ""
}

// Bounds are how many jobs of a tube clients may work on.
type Bounds struct {
	Reserved int           // at a time; 0 is any number
	Apart    time.Duration // between two that begin; 0 is none
}

// bounded reports whether a ready job may be kept back although the model does not see why.
func (b Bounds) bounded() bool { return b != Bounds{} }

// family names the jobs with which the job of a put is checked, "" if it is alone.
func (o *Op) family() string {
	switch {
	case o.Group != "":
		return "group " + o.Group
	case o.After != "":
		return "group " + o.After
	case o.Limited != "":
		return "limited key " + o.Limited
	}
	return ""
}

// Stats are the fields of a job that outlive a change of leader, and its state.
type Stats struct {
	State, Tube             string
	Pri, Delay, TTR         uint32
	Releases, Buries, Kicks uint32
}

func (o *Op) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "session %d: %s", o.Session, o.Verb)
	switch o.Verb {
	case Put:
		fmt.Fprintf(&s, " %d (number %d, pri %d, delay %d)", o.ID, o.Number, o.Pri, o.Delay)
		if o.Keyed {
			s.WriteString(" with a key")
		}
		if o.Limited != "" {
			fmt.Fprintf(&s, " of which %d with the key %s are reserved at a time", o.Most, o.Limited)
		}
		if o.Group != "" {
			s.WriteString(" of the group " + o.Group)
		}
		if o.After != "" {
			s.WriteString(" behind the group " + o.After)
		}
		if o.Expires > 0 {
			fmt.Fprintf(&s, " that expires after %v", o.Expires)
		}
	case Release:
		fmt.Fprintf(&s, " %d (pri %d, delay %d)", o.ID, o.Pri, o.Delay)
	case MoveJob:
		fmt.Fprintf(&s, " %d to %s", o.ID, o.To)
	case Bury:
		fmt.Fprintf(&s, " %d (pri %d)", o.ID, o.Pri)
	default:
		if o.ID != 0 {
			fmt.Fprintf(&s, " %d", o.ID)
		}
	}
	switch {
	case o.Verb == end:
	case o.Reply == "":
		s.WriteString(": no reply")
	default:
		s.WriteString(": " + strings.TrimSpace(o.Reply+" "+o.Found))
	}
	if o.Stats != nil {
		fmt.Fprintf(&s, " %+v", *o.Stats)
	}
	if o.Return == never {
		fmt.Fprintf(&s, " [%d, open]", o.Call)
	} else {
		fmt.Fprintf(&s, " [%d, %d]", o.Call, o.Return)
	}
	return s.String()
}
