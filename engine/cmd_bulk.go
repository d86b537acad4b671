package engine

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/shard"
)

// bulk answers a command over many jobs of a tube, which b is to carry out, unless err says why there is
// none. The reply is this word and how many jobs there were.
func (s *Session) bulk(now Time, b *shard.Bulk, reply string, err error, out *Output) Outcome {
	n, more := 0, false
	if err == nil {
		n, more, err = b.Turn(&s.loop.tx, now, out)
	}
	if load := awaited(err); load != nil {
		return s.park(now, &bulking{*b, reply}, load)
	}
	switch {
	case more:
		return s.yield(&bulking{*b, reply})
	case errors.Is(err, journal.ErrRoom):
		return s.awaitRoom(&bulking{*b, reply})
	case err != nil:
		out.Answer(err, "")
	default:
		out.Buf = codec.AppendCount(out.Buf, reply, uint64(n))
	}
	return Done
}

// bulking is a command over many jobs that is not finished.
type bulking struct {
	shard.Bulk
	reply string
}

func (b *bulking) turn(s *Session, now Time, out *Output) Outcome {
	return s.bulk(now, &b.Bulk, b.reply, nil, out)
}
