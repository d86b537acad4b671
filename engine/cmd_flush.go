package engine

import (
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// flushTube deletes all jobs of a tube that are there when it begins.
func (s *Session) flushTube(now Time, cmd *codec.Command, out *Output) Outcome {
	var b shard.Bulk
	err := s.loop.tx.Flush(now, &b, cmd.Tube, out)
	return s.bulk(now, &b, "FLUSHED", err, out)
}

// deleteTubeJobs deletes the first jobs of a tube in one state.
func (s *Session) deleteTubeJobs(now Time, cmd *codec.Command, out *Output) Outcome {
	var b shard.Bulk
	err := s.loop.tx.DeleteJobs(now, &b, cmd.Tube, cmd.State, cmd.Bound, out)
	return s.bulk(now, &b, "DELETED", err, out)
}
