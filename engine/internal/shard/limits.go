package shard

// Limits bound what clients can make the engine hold. Zero means no limit.
type Limits struct {
	// Memory is how many bytes jobs may take: records, bodies, and of bodies that
	// are arriving what has arrived. A put beyond it is answered OUT_OF_MEMORY and
	// changes nothing, except that it has used up an id if that shows only while its
	// body arrives. Jobs that are restored from a journal count, and are not refused. With Bodies, no body counts.
	Memory int64
	// Tubes is the number of tubes, beyond which use and watch of a new one are
	// answered OUT_OF_MEMORY.
	Tubes int
	// Watched is the number of tubes that one client may watch, beyond which a
	// watch is answered OUT_OF_MEMORY.
	Watched int
	// Keys is the number of keys of jobs and tombstones, beyond which a put with a new
	// one is answered OUT_OF_MEMORY. Each counts in each tube, a group once. Those that are
	// restored from a journal or moved count, and are not refused.
	Keys int
	// KeySeconds is for how many seconds at most the unique key of a deleted job is not
	// free, whatever its put says, and also if that is restored from a journal.
	KeySeconds uint32
	// Bodies is how many bytes of bodies may be in memory, with those that are arriving: what Evict lets leave it stays in
	// the journal, which must have [record.Bodies], until somebody needs it.
	Bodies int64
}
