package codec

// Command is one command or event out of a [Decoder]. Which fields mean
// something depends on Op and is listed there; the others keep whatever an
// earlier command left in them.
type Command struct {
	// Op says what this is.
	Op Op
	// CountAs is the command whose counter in the server's statistics this adds
	// one to. It is Op itself for a command, OpPut for OpPutBegin and
	// OpPutTooBig, OpDrain for OpDrainStatus, OpStatsConn for OpStatsOwnConn,
	// and OpPut or OpPauseTube for those malformed lines that beanstalkd counts
	// although it refuses them. In all other events it equals Op, which is not
	// below NumCommands.
	CountAs Op
	// Terminated says that CR LF followed the body, as it must.
	Terminated bool

	Pri     uint32 // smaller is more urgent
	Delay   uint32 // seconds: of a put or release, or of a pause
	TTR     uint32 // seconds to run, as sent: 0 is not yet made 1
	Size    uint32 // bytes of the body without its CR LF
	Bound   uint32 // how many jobs, or connections, at most
	Timeout uint32 // seconds, at most MaxTimeout
	Weight  uint32 // of a watched tube, from 1 to MaxWeight

	// ID is the id of a job or connection. Zero and ids that were never given out occur.
	ID uint64

	// Tube is a valid name of a tube. It lies in the input or in memory of the
	// decoder and is valid until the next call of a method of the decoder.
	Tube []byte

	// To is the name of the tube to which jobs go, now or once they have failed or expired. It is
	// valid for as long as Tube.
	To []byte

	// State is that of the jobs that an extension command is about.
	State State
	// Mode is how the client's reserves are to choose.
	Mode Mode
	// Info says that the client is to be told more of each job that it reserves: see JobInfo.
	Info bool
	// Abort says that a reserve of the client's is not to wait on when the client sends more.
	Abort bool
	// Token is what an auth offers, at least one visible ASCII character. It lies where
	// Tube does, and is valid for as long.
	Token []byte

	// Tags are those of a put, nil if it has none.
	Tags *Tags

	// Pairs are those of a set-tube.
	Pairs *Pairs

	// Body is a put's body or a piece of it. It lies in the input and is valid
	// for as long as the input is.
	Body []byte
}

// State is a state of jobs.
type State uint8

// The states that a command may name.
const (
	Ready State = 1 + iota
	Reserved
	Delayed
	Buried
)

// Mode is how a client's reserves choose among the tubes that it watches.
type Mode uint8

// The modes. Default is another word for FIFO.
const (
	FIFO         Mode = 1 + iota // the most urgent job of all
	Default                      //
	Weighted                     // a tube by its weight
	WeightedFair                 // of the tubes with the fewest reserved jobs for their weights, one by its weight
)

var modeNames = [...]string{FIFO: "fifo", Default: "default", Weighted: "weighted", WeightedFair: "weighted-fair"}

// Tags are what stands behind the size in the line of a put. The keys lie where Tube does,
// and are valid for as long.
type Tags struct {
	// Unique is the key of idp, nil without that tag.
	Unique []byte
	// Seconds is for how long after a delete the unique key is not free.
	Seconds uint32
	// Limited is the key of con, nil without that tag.
	Limited []byte
	// Limit is how many jobs of the limited key may be reserved, at least 1.
	Limit uint32
	// Fair is the key of fair, nil without that tag.
	Fair []byte
	// Group is the name of grp, nil without that tag.
	Group []byte
	// After is the name of aft, nil without that tag, and never that of Group.
	After []byte
	// Settled says that the tag aft had that word.
	Settled bool
	// HasExpiry says that there is a tag exp.
	HasExpiry bool
	// Expires is its number of seconds; 0: for ever.
	Expires uint32
}

// set makes cmd a plain op.
func (cmd *Command) set(op Op) {
	cmd.Op, cmd.CountAs = op, op
}
