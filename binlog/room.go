package binlog

import "time"

// deleteRoom is what is kept free for every job, so that its delete can always
// be recorded.
const deleteRoom = smallSize

// room is the account of the directory's space, in bytes. The log's mu guards
// it.
//
// The rule that it keeps: free - reserved() never goes below zero by a put or an
// update, and a delete takes as much of the one as of the other.
type room struct {
	free int64 // allocated for records and not used, in the current segment and the spares
	used int64 // appended to all segments
	disk int64 // of all files
	live int64 // of the jobs' latest full records
	jobs int64

	// margin is kept free beyond reserved, one half for what compaction moves, the
	// other for the log's own records: compaction that has used up its half can
	// still drop the segment that it has emptied, and a server can start. Ahead is
	// how much more the keeper allocates before it is needed. Both are parts of a
	// segment.
	margin, ahead int64

	wanted   struct{ n, keep int64 } // what callers wait for; n is 0 if none does
	waiters  int                     // callers that wait, or have not yet taken what they waited for
	patience time.Time               // until when waiters wait for compaction; zero if they do not
	hasty    bool                    // compaction is one of the waiters
	full     error                   // why the last file could not be allocated
	removed  bool                    // a file was removed since
}

func (r *room) init(segmentSize int64) {
	r.margin, r.ahead = segmentSize/8, segmentSize/4
}

func (r *room) reserved() int64 { return r.jobs * deleteRoom }
func (r *room) floor() int64    { return r.reserved() + r.margin }

// short tells whether it is time to allocate.
func (r *room) short() bool { return r.free < r.floor()+r.ahead }

func (r *room) want(n, keep int64) {
	r.wanted.n = max(r.wanted.n, n)
	r.wanted.keep = max(r.wanted.keep, keep)
}

// excess is how far the directory is above the size at which compaction starts,
// half a segment before the size that it must not exceed: twice the live bytes
// and two segments. One of the two is for what is allocated beyond used, reserved
// and margin. Oldest are the live bytes of the oldest segment, which are there
// twice while they are moved.
func (r *room) excess(segmentSize, oldest int64) int64 {
	return r.used + r.floor() + 2*r.ahead + oldest/2 - (2*r.live + segmentSize/2)
}

// over is how far the directory is above the size that it must not exceed.
func (r *room) over(segmentSize int64) int64 {
	return r.disk - 2*r.live - 2*segmentSize
}

// fits tells whether n bytes can be appended now with keep bytes left over. With
// mu held.
func (l *Log) fits(n, keep int64) bool {
	seg, free := l.current(), l.room.free
	if seg.used+n > seg.limit() {
		if len(l.spares) == 0 || n > capacity(l.spares[0].size) {
			return false
		}
		free -= seg.limit() - seg.used
	}
	if keep == 0 {
		return true
	}
	// A delete may leave eight bytes unused at the end of each segment.
	return free-n >= keep+8*int64(len(l.spares)+1)
}
