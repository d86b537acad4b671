// Package binlog keeps a queue's jobs on disk: a log of segments in a directory,
// with group commit, recovery and compaction. It knows nothing of connections,
// tubes' queues or scheduling.
//
// # Packages
//
//	binlog          the Log: open, append, commit, recover, compact
//	  journal       the words that a queue and its log share
//	  record        the format of segments and records, which its comment specifies
//	  sealed        whole segments, for conversions and snapshots
//	  inspect       what a directory holds: survey, verify, dump; torn and damaged
//	  convert       beanstalkd's own log in and out; salvage of a damaged log
//	  replica       the log of several servers, with packages of its own
//	  spill         bodies of jobs in files of their own, for members of a cluster: nothing uses it yet
//	  vfs           the file system as a log needs it, and one that fails on demand
//	  internal      bodies reads bodies back, elevator says in which order; index is the format of what a
//	                restart needs of a segment beside them
//
// A record passes few files. Put appends it to a batch (append.go) if the directory has
// room (room.go). The batch is written and synced (commit.go) by whoever flushes it, or by
// the committer, a goroutine. Other goroutines allocate segments ahead of need (room.go),
// make their names durable and cut them to their length when they are full (trim.go), and
// move the jobs out of the oldest (compact.go). Open surveys the directory and Replay reads it
// (recovery.go).
//
// # Use
//
// The owner of the jobs, the queue, uses a Log like this:
//
//	l, err := binlog.Open(dir, opts)   // lock, import, check, cut a torn end
//	err = l.Replay(restorer)           // the jobs
//	err = l.Start(hooks)               // the log takes appends
//	next := l.NextID()
//	t, err := l.Put(record)            // or Update, Delete: under the owner's lock of that job
//	l.Flush()                          // once after all commands of a round, without that lock
//	... l.Committed() >= t.Pos ...     // only then may the reply leave
//	err = l.Close()
//
// The owner promises:
//
//   - Records of one job are appended in the order of its states, so under a lock
//     that covers both the change and the append. Goroutines may append records of
//     different jobs at the same time.
//   - What an append refuses with an error does not happen. After ErrRoom the owner
//     releases its locks, and tries again when OnRoom was called.
//   - A record and its body do not change before the append has returned.
//   - Each id is put once and is above zero. New ids are NextID or greater.
//   - For each job it keeps the segment of the last full record, which a Ticket or
//     Restorer.Full has told, and describes that record to Delete, Move and Replace.
//   - Hooks.Migrate calls Move under the job's lock, with the job's state as of
//     then. A reserved job is recorded as ready.
//   - After Replay it sorts buried jobs by BuryOrder, since compaction changes the
//     order of full records, and gives later burials greater numbers.
//   - Replies wait for Committed. OnCommit tells when it has grown, which may be
//     before Flush returns.
//
// Settings of tubes are few. The log keeps the latest of each tube itself, and
// compaction moves them without the owner:
//
//	p, err := l.Set(&setting)          // under the owner's lock of that tube's setting
//
// An owner need not have the bodies of all jobs in memory. It keeps the place of the full record of those whose it has
// not, and asks for them:
//
//	t.Pos <= l.Durable()               // only then may its copy be the only one
//	l.Load(fetches)                    // Hooks.Fetched is told the bodies, or why there are none
//
// With Options.Indexes a restart reads what indexes say of segments (indexes.go, package inspect) and no bodies: it
// tells jobs with Record.Absent. The log makes an index of each segment that it has filled, or read at a restart, and
// removes those that it does not believe before it appends anything. Damage in a segment that has an index is found
// when a body is read, by compaction, or by verify, and not at the restart. Compaction has the owner move what it has
// in memory; what nobody can read any more keeps the segment, and those behind it, until it is deleted (compact.go).
//
// Compaction gives Hooks.Migrate the bodies that it has read. A place is valid until Move, Replace or
// Delete is called for the job; a body that is asked for before, and told after that, is the same.
//
// # Guarantees
//
// Whatever Committed has reached survives: with SyncAlways the loss of power, otherwise the
// end of the process at any moment. With SyncEvery a power cut takes at most what was
// appended in that time, with SyncNever whatever the kernel had not written. What is
// recovered is always the state after some prefix of the appends: nothing is reordered and
// no record is taken in part.
//
// An id that a client was told is not used again in the life of a directory
// (with SyncNever: unless power is lost). After a power cut that may have taken
// the last records, and after a salvage, ids are left out for that: ten million,
// and another million for each second between two syncs.
//
// Deletes need no disk space that was not reserved when the job was put. On a
// full disk Put and Update fail with ErrNoSpace, and succeed again once there is
// space. A log that was closed or killed on a full disk can be opened on it. On
// file systems that copy on write (btrfs, zfs) reserved space may turn out to be
// missing; commits then wait for space, and nothing is lost.
//
// A failed write or sync ends the log: Hooks.OnFail is called once, Committed
// does not move any more, all appends return ErrFailed. A new run first writes again
// whatever no record calls durable: after a failed sync, the system may believe that it is
// on disk.
//
// Damage, that is anything that cannot be read although it was on disk for
// certain, stops Open with a *DamageError before anything is changed.
// Options.SkipDamaged takes over what is sound, and keeps the damaged files in a
// sub-directory. A torn end is no damage: it is overwritten with zeros or removed, and
// reported.
//
// # Cost
//
// An append never waits, and allocates nothing but a buffer now and then. When clients fill
// segments faster than files can be allocated, it is refused with ErrRoom until one is, or
// for up to 4 ms when the directory has reached its greatest size and compaction is about to
// remove a segment. Hooks.OnRoom then tells when to try again, and the room that was made
// stays until it is used. One write, and one sync where that is asked for, serve all that was
// appended while the one before was under way. What waits to be written takes no more memory
// than MaxPending and a record, 16 bytes for each delete, and the record of each tombstone.
//
// With SyncAlways the committer waits for work in a system call, which wakes it sooner. It
// thus occupies one of the GOMAXPROCS processors of the runtime, and a program should set
// GOMAXPROCS one higher for that.
//
// Open files are the directory and its lock, a pipe that wakes the committer, the spare
// segments and the current one, the full ones that are not durable yet, and one that
// compaction reads; where bodies are read, also the 256 from which that was done last. When more
// than sixteen full ones wait for a sync, the sync comes early.
//
// The directory stays below twice the needed bytes and two segments. The needed bytes are
// the full records of all jobs, the latest settings, and what is reserved for tombstones, and
// with indexes, which count as the segments do, 48 bytes for each job; the
// bound includes the reserve for deletes, 16 bytes a job. When compaction cannot keep up with
// the clients, each commit waits for it up to 4 ms. For each byte that clients write,
// compaction writes no more than one or two.
//
// Replay needs memory for one read buffer, a bit for each id that was deleted, and the names
// of some 65,000 tubes at most, beside what the owner keeps: the owner does not hear of jobs
// that were deleted.
//
// # The directory
//
//	lock                  locked with fcntl, as beanstalkd does, for the life of a Log
//	trellis.0000000001    a segment; the next number follows
//	index.0000000001      what a restart needs of that segment; may be removed at any time
//	beanstalkd/           the files of a log that was imported (beanstalkd.2 and so on
//	                      if there is one already)
//	damaged/              the files of a log that was salvaged
//	takeover.tmp/         an import or a salvage that is not complete
//	takeover.done/        one that counts, whose files Open moves to their places
package binlog
