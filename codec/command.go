package codec

// Command is one command or event out of a [Decoder]. Which fields mean
// something depends on Op and is listed there; the others keep whatever an
// earlier command left in them.
type Command struct {
	// Op says what this is.
	Op Op
	// Tally is the command whose counter in the server's statistics this adds
	// one to. It is Op itself for a command, OpPut for OpPutBegin and
	// OpPutTooBig, and OpPut or OpPauseTube for those malformed lines that
	// beanstalkd counts although it refuses them. In all other events it
	// equals Op, which is not below NumCommands.
	Tally Op
	// Terminated says that CR LF followed the body, as it must.
	Terminated bool

	Pri     uint32 // smaller is more urgent
	Delay   uint32 // seconds: of a put or release, or of a pause
	TTR     uint32 // seconds to run, as sent: 0 is not yet made 1
	Size    uint32 // bytes of the body without its CR LF
	Bound   uint32 // of a kick
	Timeout uint32 // seconds, at most MaxTimeout

	// ID is the id of a job. Zero and ids that were never given out occur.
	ID uint64

	// Tube is a valid name of a tube. It lies in the input or in memory of the
	// decoder and is valid until the next call of a method of the decoder.
	Tube []byte

	// Token is what an auth offers, at least one visible ASCII character. It lies where
	// Tube does, and is valid for as long.
	Token []byte

	// Body is a put's body or a piece of it. It lies in the input and is valid
	// for as long as the input is.
	Body []byte
}

// set makes cmd a plain op.
func (cmd *Command) set(op Op) {
	cmd.Op, cmd.Tally = op, op
}
