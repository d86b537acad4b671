// Package record is the format of the log: how the records of jobs and of the
// log itself are written, checked and read, and how a segment is read from its
// start to its end. It knows of no Log, and keeps no state but a Scanner's.
//
// # Use
//
// To write, take a slice of the record's exact length ([journal.Size], [SizeOfUpdate], [SizeOfDelete],
// [SettingSize], [StartSize], [HoldSize], [NumbersSize] or [SmallSize]) and encode into it with the salt of the
// segment. To read, go through [Scanner.File] of a segment, which finds the records behind damage too. For bytes
// that are no file, [Scanner.Reset] a scanner and take records from [Scanner.Records], or from [Scanner.Next], which
// stops at damage. A record that a scanner has returned is sound: its checksums are right and its fields are
// possible, so that the decoders cannot fail on it.
//
// # The format, version 1
//
// All integers are little-endian. CRC is CRC-32C (Castagnoli, reflected, initial
// value and final xor ffffffff).
//
// A segment is a file named "trellis." and its index in ten decimal digits. It
// starts with a header of 80 bytes:
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
// A position counts bytes over the life of the directory: a segment starts where
// the one before it ends. Records follow each other from byte 80 on, each a
// multiple of eight bytes long, up to an end record or to where only zeros
// follow:
//
//	0  4  CRC of the seed, the index (4 bytes each), and the record from byte 4 to its end
//	4  4  its length in units of eight bytes, and from bit 28 on its kind
//	8  8  id, or another number
//
// The seed and the index in the CRC are the record's salt. Only the server knows
// the seed, so that no client can make a body that passes for a record.
//
// Kind 1, full: all of a job.
//
//	 8  8  id
//	16  8  created, nanoseconds since 1970
//	24  8  delayed: due, nanoseconds since 1970; buried: order of burial; ready: 0;
//	       deleted: when the key is free, nanoseconds since 1970
//	32  4  priority
//	36  4  delay, seconds
//	40  4  time to run, seconds
//	44  4  length of the body
//	48 20  reserves, timeouts, releases, buries, kicks, 4 bytes each
//	68  1  state: 1 ready, 3 buried, 4 delayed, 5 deleted, 6 held; plus 8 for attempts, plus 16 for keys,
//	       plus 32 for an origin, plus 64 for terms
//	69  1  length of the tube's name
//	70  2  the low 16 bits of the CRC of seed, index, and bytes 4 to 69
//	72     the origin if byte 68 has a 32, 4 bytes of attempts if it has an 8, the tube's name, the
//	       keys if it has a 16, the terms if it has a 64, the body, zeros up to a multiple of eight
//
// Keys are
//
//	 0  1  length of the unique key, at most 64; 0 if there is none
//	 1  1  length of the limited key, at most 64; 0 if there is none
//	 2  4  how long nobody else gets the unique key after the job's end, seconds
//	 6  4  how many jobs of the limited key may be reserved; 0 if there is none
//	10     the unique key, the limited key
//
// Terms are
//
//	0  1  length of the fair key, at most 64; 0 if there is none
//	1  1  length of the name of the group that the job is a member of; likewise
//	2  1  length of the name of the group that it waits for; likewise
//	3  1  1 if buried members of that do not count
//	4  4  how many seconds after its creation it may be started; 0: for ever
//	8     the fair key, the names of the groups
//
// A held job is delayed until the group that it waits for is complete; it waits for one.
//
// A deleted job is a tombstone: it keeps its unique key from others, has no body and zeros
// where others have numbers, and ends by a delete record. The key is free at the time in bytes
// 24 to 31, or its seconds after a start of the server, whichever is earlier. A later full record
// of another job with the same key in the same tube takes the key; the tombstone's delete follows.
//
// Attempts are the releases and timeouts since the put or the last kick. They are left out if
// the job was never kicked and they are the sum of both counts, or if it was and they are 0.
//
// Kind 2, update: a later state of a job, 56 bytes, 8 more with attempts, 16 more with an origin.
//
//	 8  8  id
//	16  8  as bytes 24 to 31 of a full record
//	24  4  priority
//	28  4  delay, seconds
//	32 20  reserves, timeouts, releases, buries, kicks
//	52  1  state, 2 for a job that stays where it is, and 8 for attempts, 32 for an origin; then
//	       three zeros
//	56     the origin if byte 52 has a 32; 4 bytes of attempts if it has an 8, and four zeros
//
// Kind 9, setting: from now on a tube's dead letters go elsewhere. Of the settings of one
// tube the last counts.
//
//	 8  4  attempts with which a job becomes a dead letter; 0: the tube has no setting
//	12  1  length of the tube's name
//	13  1  length of the dead tube's name; 0 if there is no setting
//	14  1  1 if there is an origin
//	15  1  zero
//	16     the origin, the names, zeros up to a multiple of eight
//
// Kind 14, policy: a tube has a setting that a record of kind 9 cannot hold. The last of both kinds
// counts, and one of kind 9 says that all that it does not hold is as if there were no setting.
//
//	 8  4  attempts with which a job becomes a dead letter; 0: there are none
//	12  1  length of the tube's name
//	13  1  length of the dead tube's name
//	14  1  1 if there is an origin, plus 2 if disconnects are attempts, plus 4 if the tube is paused
//	15  1  retry: factor, 1 to 10
//	16  4  retry: seconds after the first attempt; 0: none
//	20  4  retry: seconds at most, not 0
//	24  4  rate: reservations that begin in
//	28  4  so many seconds, at most 86,400; 0 and 1: no limit
//	32  4  reserved jobs at most; 0: no limit
//	36  4  seconds after which jobs expire; 0: never
//	40  2  rate: burst, at most 10,000; 0: as follows from the rate
//	42  1  retry: percent that are added at random, at most 100
//	43  1  zero
//	44  4  seconds for which jobs linger, at most 86,400; 0: they do not
//	48     the origin, the names, zeros up to a multiple of eight
//
// An origin is the command that has made a record: its session, 8 bytes, and where in the
// session's input it ends, 8 bytes.
//
// Kind 10, hold: the job is reserved by a session, wherever it stood. Of the records of a job that
// say where it is, the last counts.
//
//	 8  8  id of the job
//	16  8  the session; 0: a client of the server that has the log, or nobody
//	24  8  when the time to run ends, nanoseconds since 1970
//	32  8  where in the session's input the command ends that it answers, plus 1<<63 for a touch;
//	       0 if it answers none
//	40  4  how often the job was reserved so far; then four zeros
//
// Kind 12, numbers: a process was given a range of numbers for its loops, or a range is gone.
// A number is the upper 24 bits of the ids of sessions.
//
//	 8  4  the first
//	12  4  how many; 0, with a nonce of 0: all before the first were given
//	16  8  the process's member
//	24  8  the process's nonce; 0: they are gone. Numbers of the member with another one are gone
//
// The others have 16 bytes, except for start, and for a delete with an origin:
//
//	3 delete  the job of this id is gone, wherever else there are records of it; an origin may
//	          follow
//	4 mark    everything before this position was on disk when the mark was written
//	5 drop    segments before this index are not needed, if they are still there
//	6 start   a server has started, 48 bytes: 8 time, 16 start of the machine, 24 the
//	          next id, 32 a position as in a mark, 40 sync interval
//	7 stop    it has ended in good order; the number is as in a mark
//	8 end     of the segment; the number is the greatest id that was used so far
//	11 close  all jobs that the session of this number has reserved are ready
//
// Programs that know no attempts, keys, terms, settings, origins, holds, policies or lingering take records with these
// for damage. Origins and kinds 10 to 12 are written between members of a cluster, and into its
// snapshots; a server alone writes none but holds of no session. To one that reads them, as to all tools, a held job is
// ready, and it passes over kinds 11 and 12.
//
// A job is alive if there is a full record of its id in a segment that is needed,
// and no delete record. Its state is that of the last full or update record;
// updates before the first full record belong to a full record that is gone.
//
// # Limits
//
// A record has at most [MaxSize] bytes, a tube's name [journal.MaxTube], and a
// directory 4,294,967,295 segments in its life. A checksum of 32 bits lets one in
// four billion random changes pass.
package record
