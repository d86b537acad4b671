package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
)

// A client that goes on at another server may have sent commands whose replies were lost. The log tells which
// of them were done: these are answered, and not executed again.

// Answer says what is known of the reply to a command that was done before.
type Answer uint8

const (
	// NoAnswer: it is not known what the client would have been told. It cannot go on.
	NoAnswer Answer = iota
	// SameAnswer: the reply has every byte of the one that was lost.
	SameAnswer
	// OtherAnswer: the reply is right, and some of its bytes may be others.
	OtherAnswer
	// NotDone: nothing is left of what the command did. It is to be executed as if it began now, unless
	// something behind it was done.
	NotDone
)

// Harmless reports whether the reply to a command depends on nothing but its bytes and the tubes that its client
// uses and watches, and changes nothing else: so it may be executed although others behind it were done.
func (s *Session) Harmless(cmd *codec.Command) bool {
	switch cmd.Op {
	case codec.OpPut, codec.OpPutEnd:
		return !cmd.Terminated
	case codec.OpAuth, codec.OpHTTP:
		return true
	}
	return ownOps[cmd.Op]
}

// Answer appends the reply to a command of which the log tells by these effects, in their order, that it was
// done. It is not executed. The Outcome is that of Execute.
func (s *Session) Answer(now Time, cmd *codec.Command, effects []journal.Effect, out *Output) (Answer, Outcome) {
	if len(effects) == 0 {
		return NoAnswer, Done
	}
	for i := range effects {
		if !fits(cmd, &effects[i]) {
			return NoAnswer, Done
		}
	}
	answer, outcome := s.answer(now, cmd, effects, out)
	if answer == SameAnswer || answer == OtherAnswer {
		s.client.Flags &^= isAged
		s.counted(cmd, out)
		s.executed(outcome, out)
	}
	return answer, outcome
}

func (s *Session) answer(now Time, cmd *codec.Command, effects []journal.Effect, out *Output) (Answer, Outcome) {
	switch cmd.Op {
	case codec.OpPut, codec.OpPutEnd:
		return s.answerPut(now, cmd, effects, out), Done
	case codec.OpReserve, codec.OpReserveWithTimeout, codec.OpReserveJob:
		return s.answerReserve(now, effects[len(effects)-1].ID, out)
	case codec.OpReserveBatch:
		return s.answerBatch(now, effects, out)
	case codec.OpTouchAll:
		return NotDone, Done // only a count of what it holds is right, and it may touch all twice
	case codec.OpKick, codec.OpKickTube, codec.OpMoveTube, codec.OpDeleteTubeJobs:
		if cmd.Bound != 1 {
			return NoAnswer, Done // how far it came is not known
		}
	}
	reply := lostReplies[cmd.Op].reply
	s.tellAnswered(cmd, reply)
	out.Reply(reply)
	return SameAnswer, Done
}

// effectKinds are kinds of effects, a bit each. The first is that of a put that leaves a tombstone.
type effectKinds uint8

const (
	aTombstone effectKinds = 1
	aPut       effectKinds = 1 << journal.EffectPut
	anUpdate   effectKinds = 1 << journal.EffectUpdate
	aDelete    effectKinds = 1 << journal.EffectDelete
	aHold      effectKinds = 1 << journal.EffectHold
	aTouch     effectKinds = 1 << journal.EffectTouch
	aSetting   effectKinds = 1 << journal.EffectSetting

	anEnd = aDelete | aTombstone // also of what has expired meanwhile
)

// lostReplies are, of each command that has effects, their kinds, and the reply where it is always the same. Of
// some commands over many jobs it is that of a command that asks for one.
var lostReplies = [codec.NumCommands]struct {
	reply string
	kinds effectKinds
}{
	codec.OpPut:                {"", aPut | anUpdate | aDelete},
	codec.OpReserve:            {"", aHold | aTouch},
	codec.OpReserveWithTimeout: {"", aHold | aTouch},
	codec.OpReserveJob:         {"", aHold | aTouch},
	codec.OpReserveBatch:       {"", aHold | aTouch},
	codec.OpTouchAll:           {"", aTouch},
	codec.OpDelete:             {codec.ReplyDeleted, anEnd},
	codec.OpRelease:            {codec.ReplyReleased, aPut | anUpdate | anEnd},
	codec.OpBury:               {codec.ReplyBuried, anUpdate},
	codec.OpTouch:              {codec.ReplyTouched, aTouch},
	codec.OpKickJob:            {codec.ReplyKicked, anUpdate},
	codec.OpMoveJob:            {codec.ReplyMoved, aPut | anUpdate | anEnd},
	codec.OpSetDLQ:             {codec.ReplyDLQSet, aSetting},
	codec.OpSetTube:            {codec.ReplyTubeSet, aSetting},
	codec.OpKick:               {"KICKED 1\r\n", anUpdate},
	codec.OpKickTube:           {"KICKED 1\r\n", anUpdate},
	codec.OpMoveTube:           {"MOVED 1\r\n", aPut},
	codec.OpDeleteTubeJobs:     {"DELETED 1\r\n", anEnd},
}

// fits reports whether a command can have an effect, of which another server has told.
func fits(cmd *codec.Command, x *journal.Effect) bool {
	if !x.Valid() {
		return false
	}
	op, kind := cmd.Op, effectKinds(1)<<x.Kind
	if x.Kind == journal.EffectPut && x.State == journal.Deleted {
		kind = aTombstone
	}
	switch op {
	case codec.OpPutEnd:
		op = codec.OpPut
	case codec.OpDelete, codec.OpRelease, codec.OpBury, codec.OpTouch, codec.OpKickJob, codec.OpMoveJob,
		codec.OpReserveJob:
		if x.ID != cmd.ID {
			return false
		}
	}
	return op < codec.NumCommands && lostReplies[op].kinds&kind != 0 && (op != codec.OpPut || cmd.Terminated)
}

// answerPut answers a put that has made a job, or has given that of its unique key a more urgent priority.
func (s *Session) answerPut(now Time, cmd *codec.Command, effects []journal.Effect, out *Output) Answer {
	pri, unique := cmd.Pri, cmd.Tags != nil && cmd.Tags.Unique != nil
	if cmd.Op == codec.OpPutEnd {
		if s.incoming == nil {
			return NoAnswer // the client had no right to it
		}
		pri, unique = s.incoming.Pri()
	}
	var last *journal.Effect // that was not taken back
	for i := range effects {
		switch x := &effects[i]; {
		case x.Kind != journal.EffectDelete:
			last = x
		case last != nil && last.ID != x.ID:
			return NoAnswer
		default:
			last = nil
		}
	}
	switch {
	case last == nil:
		return NotDone
	case last.Kind == journal.EffectPut:
		out.Buf = codec.AppendInserted(out.Buf, last.ID)
	case !unique || raisedStates[last.State] == "":
		return NoAnswer
	default:
		out.Buf = codec.AppendRaised(out.Buf, last.ID, raisedStates[last.State], pri)
	}
	s.becomeProducer()
	s.discardIncoming(now)
	return SameAnswer
}

// raisedStates are the words for the state in which the log leaves a holder of a unique key that was raised, "" where
// none is raised.
var raisedStates = [...]string{
	journal.Ready: "READY", journal.Stays: "RESERVED", journal.Buried: "BURIED", journal.Delayed: "DELAYED",
	journal.Held: "DELAYED",
}

// answerReserve hands out a job again, if the session has it still.
func (s *Session) answerReserve(now Time, id uint64, out *Output) (Answer, Outcome) {
	if s.loop.tx.Reclaim(now, id, &s.client, out) != nil {
		return NoAnswer, Done // others could not be told that it is this client's
	}
	has, err := s.loop.tx.Handed(now, id, &s.client, 0, s.informed(), out)
	outcome, load := Done, awaited(err)
	switch {
	case load != nil:
		outcome = s.park(now, redelivery(id), load)
		s.wait.since = now // see WaitingSince
	case !has || err != nil:
		return NotDone, Done
	}
	s.becomeWorker()
	if s.informed() {
		return OtherAnswer, outcome // it tells of the job's age
	}
	return SameAnswer, outcome
}

// A redelivery goes on with the answer to a reserve whose job's body was loaded.
type redelivery uint64

func (id redelivery) turn(s *Session, now Time, out *Output) Outcome {
	has, err := s.loop.tx.Handed(now, uint64(id), &s.client, 0, s.informed(), out)
	load := awaited(err)
	switch {
	case load != nil:
		return s.park(now, id, load)
	case !has:
		return Quit // what the client would have been told is not known
	case err != nil:
		out.Answer(err, "")
	}
	return Done
}

// answerBatch hands out again what the session still has of some jobs.
func (s *Session) answerBatch(now Time, effects []journal.Effect, out *Output) (Answer, Outcome) {
	list := lastHeld(effects)
	for _, id := range list {
		if s.loop.tx.Reclaim(now, id, &s.client, out) != nil {
			return NoAnswer, Done
		}
	}
	b, same := s.loop.tx.RepeatBatch(now, &s.client, list, s.informed())
	if b == nil {
		return NotDone, Done
	}
	s.becomeWorker()
	outcome := batching{b, len(list), now}.turn(s, now, out)
	switch {
	case outcome == Wait:
		s.wait.since = now // see WaitingSince
	case outcome == Quit:
		return NoAnswer, Done
	}
	if same {
		return SameAnswer, outcome
	}
	return OtherAnswer, outcome
}

// lastHeld are the jobs of holds, in the order in which each was held last. A touch says that a job was reclaimed.
func lastHeld(effects []journal.Effect) (list []uint64) {
	at := make(map[uint64]int, len(effects))
	for i := range effects {
		if effects[i].Kind == journal.EffectHold {
			at[effects[i].ID] = i
		}
	}
	for i := range effects {
		if id := effects[i].ID; effects[i].Kind == journal.EffectHold && at[id] == i {
			list = append(list, id)
		}
	}
	return list
}

// tellAnswered tells Config.Audit of a command that was done elsewhere: whoever did it may not have come to that.
func (s *Session) tellAnswered(cmd *codec.Command, reply string) {
	switch cmd.Op {
	case codec.OpKickTube, codec.OpMoveJob, codec.OpMoveTube, codec.OpDeleteTubeJobs, codec.OpSetDLQ, codec.OpSetTube:
		if s.loop.engine.config.Audit != nil {
			d := s.deedOf(cmd)
			s.tellDone(&d, []byte(reply))
		}
	}
}
