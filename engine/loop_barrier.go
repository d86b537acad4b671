package engine

import "trellis/codec"

// ownOps are the commands whose replies show nothing that other clients can change,
// apart from what the command itself has recorded. All others are assumed to.
var ownOps = [256]bool{
	codec.OpPut: true, codec.OpPutBegin: true, codec.OpPutChunk: true, codec.OpPutEnd: true,
	codec.OpPutTooBig: true, codec.OpPutTooBigEnd: true,
	codec.OpUse: true, codec.OpWatch: true, codec.OpIgnore: true, codec.OpReserveMode: true,
	codec.OpListTubeUsed: true, codec.OpListTubesWatched: true,
	codec.OpQuit: true, codec.OpUnknown: true, codec.OpBadFormat: true,
}

// Replied counts the replies in out, of n bytes, and completes out.Pos. It is called once,
// before they are sent or kept, and makes them depend on the journal's barrier if they tell
// of a state that clients share and no record behind that state proves it already.
func (s *Session) Replied(n int, out *Output) {
	s.bytesOut += uint64(n)
	if out.TakeShowState() {
		out.DependOn(s.loop.engine.Log().Barrier())
	}
}
