package engine

import (
	"strconv"

	"trellis/codec"
	"trellis/engine/stats"
)

// statsGroup tells of a group, whose members may be in any tubes. Nobody sees all of them at one
// moment: the counts are what the group's jobs have come to by now.
func (s *Session) statsGroup(name []byte, out *Output) {
	l := s.loop
	n := l.engine.GroupNamed(string(name), out)
	if n == (stats.Group{}) {
		out.Reply(codec.ReplyNotFound)
		return
	}
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.quoted("name", string(name))
	y.number("pending", uint64(n.Members))
	y.number("buried", uint64(n.Buried))
	y.bare("complete", strconv.FormatBool(n.Members == 0))
	y.number("waiting-jobs", uint64(n.Held))
	l.reply(out, y)
}
