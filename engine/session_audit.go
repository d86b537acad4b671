package engine

import (
	"bytes"
	"strings"

	"trellis/codec"
)

// deedOf is what a command is about, as far as it says so itself.
func (s *Session) deedOf(cmd *codec.Command) Deed {
	d := Deed{Client: s.name(), Op: commandOf(cmd.Op), from: s}
	switch d.Op {
	case codec.OpPut, codec.OpKick, codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried:
		d.Tube = s.client.TubeUsed()
	case codec.OpUse, codec.OpWatch, codec.OpStatsTube, codec.OpListJobs, codec.OpPeekTube, codec.OpPauseTube,
		codec.OpFlushTube, codec.OpDeleteTubeJobs, codec.OpKickTube, codec.OpListSettings:
		d.Tube = nameInDeed(cmd.Tube)
	case codec.OpMoveTube, codec.OpSetDLQ, codec.OpSetTube:
		d.Tube, d.To = nameInDeed(cmd.Tube), nameInDeed(cmd.To)
	case codec.OpMoveJob:
		d.ID, d.To = cmd.ID, nameInDeed(cmd.Tube)
	case codec.OpDelete, codec.OpRelease, codec.OpBury, codec.OpTouch, codec.OpReserveJob, codec.OpKickJob, codec.OpPeek,
		codec.OpStatsJob, codec.OpStatsConn, codec.OpKickConn:
		d.ID = cmd.ID
	}
	return d
}

func nameInDeed(tube []byte) string {
	if bytes.HasPrefix(tube, []byte(TokenTube)) {
		return TokenTube
	}
	return string(tube)
}

// audited executes a command of which Config.Audit is told.
func (s *Session) audited(now Time, cmd *codec.Command, out *Output) Outcome {
	if s.loop.engine.config.Audit == nil {
		return s.manage(now, cmd, out)
	}
	a := auditing{deed: s.deedOf(cmd)}
	from := len(out.Buf)
	outcome := s.manage(now, cmd, out)
	if outcome == Wait {
		a.deed.Peer() // which may have gone at the end
		a.task = s.wait.task
		s.wait.task = &a
	} else {
		s.tellDone(&a.deed, out.Buf[from:])
	}
	return outcome
}

// auditing is a task of whose end Config.Audit is told.
type auditing struct {
	task task
	deed Deed
}

func (a *auditing) turn(s *Session, now Time, out *Output) Outcome {
	from := len(out.Buf)
	outcome := a.task.turn(s, now, out)
	if outcome == Wait {
		a.task = s.wait.task
		s.wait.task = a
	} else {
		s.tellDone(&a.deed, out.Buf[from:])
	}
	return outcome
}

// tellUnfinished tells of the command of a session that is closed before its end.
func (s *Session) tellUnfinished() {
	if a, ok := s.wait.task.(*auditing); ok {
		a.deed.Result = Unfinished
		s.loop.engine.config.Audit(a.deed)
	}
}

// tellDone tells of a command that was answered.
func (s *Session) tellDone(d *Deed, reply []byte) {
	line, _, _ := bytes.Cut(reply, []byte("\r\n"))
	d.Result = string(line)
	s.loop.engine.config.Audit(*d)
}

// address implements what a Deed asks for.
func (s *Session) address() string { return s.loop.peerAddr(s) }

// tellDenied tells of a command that the client has no right to, on a tube if it is known
// from elsewhere.
func (s *Session) tellDenied(cmd *codec.Command, tube, reply string) {
	elsewhere, audit := s.loop.peers, s.loop.engine.config.Audit
	if elsewhere == nil && audit == nil {
		return
	}
	d := s.deedOf(cmd)
	if tube != "" {
		d.Tube = nameInDeed([]byte(tube))
	}
	d.Result, d.Denied = strings.TrimSuffix(reply, "\r\n"), true
	if (elsewhere == nil || !elsewhere.Denied(s, &d)) && audit != nil {
		audit(d)
	}
}
