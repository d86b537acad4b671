package journal

// What is on record of reservations: those of sessions of clients that come through other members of a cluster, and
// those in tubes that linger. A server alone records the latter only.

// Hold is a reservation that is on record: of all that is on record of a job, the last says
// who has it. So a Hold may come twice.
type Hold struct {
	ID       uint64 // the job's
	Session  uint64 // who has it; 0: a client of the server that has the log, or nobody: it is an orphan
	End      int64  // of its time to run, cluster time, nanoseconds since 1970
	Offset   uint64 // where in the session's input the command ends that it answers; 0: it answers none
	Touch    bool   // the command was a touch
	Reserves uint32 // how often the job was reserved, this time included
}

// Origin names a command: the session, and where in its input the command ends. The zero Origin
// is none.
type Origin struct {
	Session uint64
	Offset  uint64
}

// An Effect is what a record tells of the command that has made it: what its client has to be told, should
// the reply be lost. A delete of the job of a put, by the same command, takes that back.
type Effect struct {
	Session uint64
	Offset  uint64 // where in the session's input the command ends
	ID      uint64 // the job's; 0 of a setting
	Kind    EffectKind
	State   State // of a put or an update; otherwise 0
}

// EffectKind is the kind of record of an [Effect].
type EffectKind uint8

// The kinds. Their values are seen by other members.
const (
	EffectPut     EffectKind = 1 + iota // all of a job: it is new, has moved, or leaves a tombstone
	EffectUpdate                        // a job's state
	EffectDelete                        // the end of a job
	EffectHold                          // a reservation
	EffectTouch                         // a reservation ends at another time
	EffectSetting                       // of a tube
)

// Valid reports whether a record can tell of an effect.
func (x *Effect) Valid() bool {
	o := Origin{Session: x.Session, Offset: x.Offset}
	return o.Valid() && EffectPut <= x.Kind && x.Kind <= EffectSetting && (x.ID == 0) == (x.Kind == EffectSetting) &&
		(x.State != 0) == (x.Kind <= EffectUpdate) && x.State <= Held &&
		(x.Kind != EffectPut || x.State != Stays) && (x.Kind != EffectUpdate || x.State != Deleted)
}

// Numbers are a range of numbers that a process was given for its loops, one each, or that are
// gone. A number is the upper part of the ids of its loop's sessions: see NumberOf. Once gone,
// it is never given again.
type Numbers struct {
	First, Count uint32
	Member       uint64 // the process's
	Nonce        uint64 // the process's, at random; 0: they are gone
}

const (
	// NumberBits is how many bits of a session's id are its loop's number.
	NumberBits = 24

	// MaxOffset is the greatest offset in the input of a session.
	MaxOffset = 1<<63 - 1

	// HoldSize is what a hold takes.
	HoldSize = 48

	// OriginSize is what an origin takes in a record.
	OriginSize = 16
)

// NumberOf is the number of the loop that a session belongs to.
func NumberOf(session uint64) uint32 { return uint32(session >> (64 - NumberBits)) }

// Valid reports whether a hold can be on record.
func (h *Hold) Valid() bool {
	return h.ID != 0 && h.Offset <= MaxOffset && (h.Offset != 0 || !h.Touch) && (h.Session != 0 || h.Offset == 0)
}

// Valid reports whether an origin can be on record. The zero Origin can not.
func (o *Origin) Valid() bool { return o.Session != 0 && o.Offset != 0 && o.Offset <= MaxOffset }

// Valid reports whether numbers can be on record. A range that is empty and gone says that all
// before it were given.
func (n *Numbers) Valid() bool {
	return n.First != 0 && n.Count < 1<<NumberBits && n.First+n.Count <= 1<<NumberBits &&
		(n.Nonce == 0 || n.Count > 0 && n.Member != 0)
}

// Has reports whether a number is one of them.
func (n *Numbers) Has(number uint32) bool { return number-n.First < n.Count }
