package engine

import (
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// kick moves up to bound buried jobs of the used tube to its ready queue, or,
// if none is buried, delayed ones. Jobs that are buried or delayed after it began do not
// make it longer.
func (s *Session) kick(now Time, bound uint32, out *Output) Outcome {
	var b shard.Bulk
	err := s.loop.tx.Kick(now, &b, &s.client, nil, bound, out)
	return s.bulk(now, &b, "KICKED", err, out)
}

// kickTube is kick for the tube that the command names.
func (s *Session) kickTube(now Time, cmd *codec.Command, out *Output) Outcome {
	var b shard.Bulk
	err := s.loop.tx.Kick(now, &b, &s.client, cmd.Tube, cmd.Bound, out)
	return s.bulk(now, &b, "KICKED", err, out)
}
