package codec

import "slices"

// Op says what a [Command] is: a command of the protocol, which is below
// [NumCommands], or an event of the decoder, which is above it.
type Op uint8

// The commands of the protocol. Behind each stand the fields of [Command] that
// it fills besides Op and CountAs; the others hold nothing of meaning.
const (
	OpPut                Op = iota // Pri, Delay, TTR, Size, Tags, Body, Terminated: a put and all of its body
	OpPeek                         // ID
	OpPeekReady                    //
	OpPeekDelayed                  //
	OpPeekBuried                   //
	OpReserve                      //
	OpReserveWithTimeout           // Timeout
	OpReserveJob                   // ID
	OpDelete                       // ID
	OpRelease                      // ID, Pri, Delay
	OpBury                         // ID, Pri
	OpKick                         // Bound
	OpKickJob                      // ID
	OpTouch                        // ID
	OpStats                        //
	OpStatsJob                     // ID
	OpStatsTube                    // Tube
	OpUse                          // Tube
	OpWatch                        // Tube, Weight
	OpIgnore                       // Tube
	OpListTubes                    //
	OpListTubeUsed                 //
	OpListTubesWatched             //
	OpPauseTube                    // Tube, Delay
	OpQuit                         //

	// NumStock is the number of commands that beanstalkd has. It is no Op itself.
	NumStock
)

// The commands that beanstalkd does not have. A [Decoder] knows them if its
// Extensions says so.
const (
	OpCapabilities   = NumStock + iota
	OpFlushTube      // Tube
	OpListJobs       // Tube, State, Bound, ID: at most Bound jobs, those behind ID
	OpKickTube       // Tube, Bound
	OpPeekTube       // Tube, State
	OpMoveJob        // ID, Tube
	OpMoveTube       // Tube, State, To, Bound
	OpDeleteTubeJobs // Tube, State, Bound
	OpReserveBatch   // Bound, Timeout
	OpTouchAll       //
	OpDrain          //
	OpUndrain        //
	OpSetDLQ         // Tube, Bound, To: after Bound attempts a job goes to To; none if Bound is 0
	OpListDLQ        //
	OpStatsConn      // ID
	OpListConns      // Bound, ID: at most Bound connections, those with greater ids than ID
	OpKickConn       // ID
	OpListAccounts   //
	OpReload         //
	OpSetTube        // Tube, Pairs, To
	OpListSettings   // Tube, empty if it names none
	OpReserveMode    // Mode, Info, Abort
	OpStatsTubeX     // Tube
	OpStatsTubes     // Bound, Tube: at most Bound tubes, those behind Tube
	OpStatsGroup     // Tube: the name of a group

	// NumCommands is the number of commands, for arrays with one element for
	// each. It is no Op itself.
	NumCommands
)

// The events of the decoder.
const (
	// OpPutBegin is the line of a put whose body is not wholly in hand. It
	// fills Pri, Delay, TTR, Size and Tags. OpPutChunk and OpPutEnd follow.
	OpPutBegin Op = NumCommands + 1 + iota
	// OpPutChunk is a piece of that body, in Body. It is never empty.
	OpPutChunk
	// OpPutEnd is the end of that body. It fills Terminated.
	OpPutEnd
	// OpPutTooBig is the line of a put whose body exceeds the limit. It fills
	// Pri, Delay, TTR and Size. The decoder drops the body and the two bytes
	// behind it, then comes OpPutTooBigEnd. Nothing is to be answered yet.
	OpPutTooBig
	// OpPutTooBigEnd says that all of that body was dropped: the answer
	// JOB_TOO_BIG is due.
	OpPutTooBigEnd
	// OpBadFormat is a malformed line: the answer BAD_FORMAT is due.
	OpBadFormat
	// OpDrainStatus is a drain that asks only. It counts as OpDrain.
	OpDrainStatus
	// OpStatsOwnConn is a stats-conn without an id. It counts as OpStatsConn.
	OpStatsOwnConn
	// OpUnknown is a line that begins with no known word: the answer
	// UNKNOWN_COMMAND is due.
	OpUnknown
	// OpAuth is the command auth and fills Token. It is no command of
	// beanstalkd's: where clients need not authenticate it is to be taken for
	// OpUnknown, and so it is counted.
	OpAuth
	// OpHTTP is a line that ends as the first line of an HTTP request does: the
	// client is a program that was made to send commands in the guise of a request,
	// or does not know where it has connected to. UNKNOWN_COMMAND and the end of the
	// connection are due.
	OpHTTP
)

var opNames = [...]string{
	OpPut:                "put",
	OpPeek:               "peek",
	OpPeekReady:          "peek-ready",
	OpPeekDelayed:        "peek-delayed",
	OpPeekBuried:         "peek-buried",
	OpReserve:            "reserve",
	OpReserveWithTimeout: "reserve-with-timeout",
	OpReserveJob:         "reserve-job",
	OpDelete:             "delete",
	OpRelease:            "release",
	OpBury:               "bury",
	OpKick:               "kick",
	OpKickJob:            "kick-job",
	OpTouch:              "touch",
	OpStats:              "stats",
	OpStatsJob:           "stats-job",
	OpStatsTube:          "stats-tube",
	OpUse:                "use",
	OpWatch:              "watch",
	OpIgnore:             "ignore",
	OpListTubes:          "list-tubes",
	OpListTubeUsed:       "list-tube-used",
	OpListTubesWatched:   "list-tubes-watched",
	OpPauseTube:          "pause-tube",
	OpQuit:               "quit",
	OpCapabilities:       "capabilities",
	OpFlushTube:          "flush-tube",
	OpListJobs:           "list-jobs",
	OpKickTube:           "kick-tube",
	OpPeekTube:           "peek-tube",
	OpMoveJob:            "move-job",
	OpMoveTube:           "move-tube",
	OpDeleteTubeJobs:     "delete-tube-jobs",
	OpReserveBatch:       "reserve-batch",
	OpTouchAll:           "touch-all",
	OpDrain:              "drain",
	OpUndrain:            "undrain",
	OpSetDLQ:             "set-dlq",
	OpListDLQ:            "list-dlq",
	OpStatsConn:          "stats-conn",
	OpListConns:          "list-connections",
	OpKickConn:           "kick-connection",
	OpListAccounts:       "list-accounts",
	OpReload:             "reload",
	OpSetTube:            "set-tube",
	OpListSettings:       "list-settings",
	OpReserveMode:        "reserve-mode",
	OpStatsTubeX:         "stats-tube-x",
	OpStatsTubes:         "stats-tubes",
	OpStatsGroup:         "stats-group",
	OpDrainStatus:        "(drain status)",
	OpStatsOwnConn:       "(stats-conn)",
	OpPutBegin:           "(put begin)",
	OpPutChunk:           "(put chunk)",
	OpPutEnd:             "(put end)",
	OpPutTooBig:          "(put too big)",
	OpPutTooBigEnd:       "(put too big end)",
	OpBadFormat:          "(bad format)",
	OpUnknown:            "(unknown)",
	OpAuth:               "(auth)",
	OpHTTP:               "(HTTP)",
}

// OpNamed returns the operation of which String returns that name, OpUnknown if there is none.
func OpNamed(name string) Op {
	if i := slices.Index(opNames[:], name); i >= 0 && name != "" {
		return Op(i)
	}
	return OpUnknown
}

// String returns the protocol's word for a command, such as "peek-ready", and a
// description in parentheses for an event of the decoder.
func (op Op) String() string {
	if int(op) < len(opNames) && opNames[op] != "" {
		return opNames[op]
	}
	return "(no op)"
}
