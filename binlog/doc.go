// Package binlog keeps a queue's jobs on disk: a log of segments in a directory,
// with group commit, recovery, compaction, and the way from and to beanstalkd's
// own log. It knows nothing of connections, tubes' queues or scheduling.
//
// # Use
//
// The owner of the jobs (the queue) uses a Log so:
//
//	l, err := binlog.Open(dir, opts)   // lock, import, check, cut a torn end
//	err = l.Replay(restorer)           // the jobs, then the log takes appends
//	next := l.NextID()
//	t, err := l.Put(record)            // or Update, Delete: under the owner's lock of that job
//	l.Flush()                          // once after a batch of commands, without that lock
//	... l.Committed() >= t.Pos ...     // only then may the reply leave
//	err = l.Close()
//
// The owner promises:
//
//   - Records of one job are appended in the order of its states, so under a lock
//     that covers both the change and the append. Several jobs' locks may be held
//     by several goroutines.
//   - What an append refuses with an error does not happen.
//   - An id is put once, is above zero, and ids come from NextID on.
//   - For each job it keeps the segment from the last Ticket or Restorer.Full, and
//     gives it to Delete and Move.
//   - Options.Migrate calls Move under the job's lock, with the job's state as of
//     then. A reserved job is recorded as ready.
//   - After Replay it sorts buried jobs by BuryOrder, since compaction changes the
//     order of full records, and gives later burials greater numbers.
//   - Replies wait for Committed. OnCommit tells when it has grown, and Flush may
//     have let it grow at once.
//
// # Guarantees
//
// Whatever Committed has reached survives: with SyncInterval 0 the loss of
// power, otherwise the end of the process at any moment. With a positive
// SyncInterval a power cut takes at most what was appended in that time, with
// NeverSync whatever the kernel had not written. What is recovered is always the
// state after some prefix of the appends: nothing is reordered and no record is
// taken in part.
//
// An id that a client was told is not used again in the life of a directory
// (with NeverSync: unless power is lost). After a power cut that may have taken
// the last records, and after a salvage, ids are left out for that: ten million,
// and another million for each second of SyncInterval.
//
// Deletes need no disk space that was not reserved when the job was put. On a
// full disk Put and Update fail with ErrNoSpace, and succeed again once there is
// space. A log that was closed or killed on a full disk can be opened on it. On
// file systems that copy on write (btrfs, zfs) reserved space may turn out to be
// missing; commits then wait for space, and nothing is lost.
//
// A failed write or sync ends the log: Options.OnFail is called once, Committed
// does not move any more, all appends return ErrFailed.
//
// Damage, that is anything that cannot be read although it was on disk for
// certain, stops Open with a *DamageError before anything is changed.
// Options.SkipDamaged takes over what is sound, and keeps the damaged files in a
// sub-directory.
//
// # Cost
//
// An append copies the record to a buffer under a short lock, and does not
// allocate. It waits in one case only: when clients fill segments faster than
// files can be allocated, until one is, or up to 4 ms when the directory has
// reached its greatest size. It does not wait for writes and syncs; a record that
// is larger than a segment may wait for a truncation too. One write, and one sync
// where that is asked for, serve all that was appended while the one before was
// under way. Memory for what waits to be written is bounded by Options.MaxPending
// plus a record, and 16 bytes for each delete.
//
// The files that are open are the directory and its lock, the spare segments and
// the current one, the full ones that are not durable yet, and one that
// compaction reads. When more than sixteen full ones wait for a sync, it comes
// before its time.
//
// The directory stays below twice the live bytes, that is the size of the full
// records of all jobs, and two segments. When compaction cannot keep up with the
// clients, each commit waits for it up to 4 ms. For each byte that clients write,
// compaction writes no more than one or two. The reserve for deletes, 16 bytes a
// job, is in the bound.
//
// Replay needs memory for one read buffer and a bit for each id that was deleted,
// beside what the owner keeps: jobs that were deleted are not told at all.
//
// # The directory
//
//	lock                  a lock of fcntl's, as beanstalkd takes it, for the life of a Log
//	trellis.0000000001    a segment, numbered in decimal; the next number follows
//	beanstalkd/           the files of a log that was imported (beanstalkd.2 and so on
//	                      if there is one already)
//	damaged/              the files of a log that was salvaged
//	takeover.tmp/         an import or a salvage that is not complete
//	takeover.done/        one that counts: its file "plan" has the name of the directory for
//	                      the old files, then the names of those, one on a line; the other
//	                      files are the new segments. Open moves all of them.
//
// # The format, version 1
//
// All integers are little-endian. CRC is CRC-32C (Castagnoli, reflected, initial
// value and final xor ffffffff).
//
// A segment starts with a header of 80 bytes:
//
//	 0  8  "TRELLIS\n"
//	 8  4  version of the format, 1
//	12  4  seed, the same in all segments of a directory
//	16  4  index of the segment, as in its name
//	20  4  index of the oldest segment that was needed when this one was begun
//	24  8  position of the header's first byte
//	32  8  position before which everything was on disk then
//	40  8  no id greater than this was used before the segment
//	48  8  when it was begun, nanoseconds since 1970
//	56  8  number of the machine's start, 0 if unknown
//	64  8  sync interval of the run, nanoseconds; 0 each commit, -1 never
//	72  4  zero
//	76  4  CRC of the 76 bytes before
//
// A position is a count of bytes over the life of the directory: a segment
// starts where the one before it ends. Records follow each other from byte 80 on,
// each a multiple of eight bytes long:
//
//	0  4  CRC of the seed, the index (4 bytes each), and the record from byte 4 to its end
//	4  4  its length in units of eight bytes, and from bit 28 on its kind
//	8  8  id, or another number
//
// The seed in the CRC is known to the server only: no client can make bytes that
// pass for a record.
//
// Kind 1, full: all of a job.
//
//	 8  8  id
//	16  8  created, nanoseconds since 1970
//	24  8  delayed: due, nanoseconds since 1970; buried: order of burial; ready: 0
//	32  4  priority
//	36  4  delay, seconds
//	40  4  time to run, seconds
//	44  4  length of the body
//	48 20  reserves, timeouts, releases, buries, kicks, 4 bytes each
//	68  1  state: 1 ready, 3 buried, 4 delayed
//	69  1  length of the tube's name
//	70  2  the low 16 bits of the CRC of seed, index, and bytes 4 to 69
//	72     the tube's name, the body, zeros up to a multiple of eight
//
// Kind 2, update: a later state of a job, 56 bytes.
//
//	 8  8  id
//	16  8  as bytes 24 to 31 of a full record
//	24  4  priority
//	28  4  delay, seconds
//	32 20  reserves, timeouts, releases, buries, kicks
//	52  1  state, and three zeros
//
// The others have 16 bytes, but for start:
//
//	3 delete  the job of this id is no more, wherever else there are records of it
//	4 mark    everything before this position was on disk when the mark was written
//	5 drop    segments before this index are not needed, if they are still there
//	6 start   a server has started, 48 bytes: 8 time, 16 start of the machine, 24 the
//	          next id, 32 a position as in a mark, 40 sync interval
//	7 stop    it has ended in good order; the number is as in a mark
//	8 end     of the segment; the number is the greatest id that was used so far
//
// A job is alive if there is a full record of its id in a segment that is needed
// and no delete record. Its state is that of the last full or update record;
// updates before the first full record belong to one that is gone.
//
// # Recovery
//
// The segments are read from the oldest that is needed, each up to its end
// record, the last one up to where only zeros follow. A place that holds no sound
// record, or where a segment or its end is missing, is damage if anything that
// can be read behind it (a header, a mark, a start or stop record, found by
// trying every eighth byte) says that it was on disk. Otherwise it is what a
// crash has left of writes that were not synced: the log ends there, and what
// follows is overwritten or removed, and reported. A checksum that is right over
// what cannot be true is damage too. A log that is never synced
// knows of nothing that is on disk for certain, so that in it only the last
// segment can be torn, and a loss of power may leave it damaged.
//
// What no record calls durable is written once more before a new run begins: if a
// sync has failed before, the system may believe it to be on disk.
//
// Two things go unnoticed: a bit that flips in the last batch before a crash,
// which no later record vouches for, is taken for a torn end; and if somebody
// removes the newest segments, nothing is left that tells of them.
package binlog
