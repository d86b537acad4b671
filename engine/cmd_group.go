package engine

import (
	"strconv"

	"trellis/codec"
)

// statsGroup tells of a group, whose members may be in any tubes. Nobody sees all of them at one
// moment: the counts are what the group's jobs have come to by now.
func (s *Session) statsGroup(name []byte, out *Output) {
	l := s.loop
	n := l.engine.groups.look(string(name))
	// Members and held jobs have come and gone in any shard.
	for _, sh := range l.engine.shards {
		out.dependOn(sh.dependsOnEnds())
	}
	if n == (groupCount{}) {
		out.reply(codec.ReplyNotFound)
		return
	}
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.quoted("name", string(name))
	y.number("pending", uint64(n.members))
	y.number("buried", uint64(n.buried))
	y.bare("complete", strconv.FormatBool(n.members == 0))
	y.number("waiting-jobs", uint64(n.held))
	l.reply(out, y)
}
