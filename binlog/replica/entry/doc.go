// Package entry is the format of what a raft entry says to the replicas of a queue: a
// header and records of the binlog (package record). One entry is one group commit: the
// records of one operation are never in two entries.
//
// # Use
//
// To write, take a buffer that starts with [HeaderSize] bytes, append records to it that
// are encoded with [Salt], and Seal it. To read, [Reader.Reset] a reader to the data of
// an entry and take the records from [Reader.Next].
//
// A reader believes nothing: it checks lengths, checksums and fields before it returns
// a header or a record, and takes memory for one window only. A node that meets an entry
// that it cannot read has to end its process: to leave it out would let replicas
// diverge.
//
// # The format, versions 1 to 5
//
// All integers are little-endian.
//
//	 0  4  CRC-32C of the data from byte 4 to its end
//	 4  1  version of the format, 1 to 5
//	 5  1  kind: 1 records, 2 begin, 3 raise
//	 6  2  of a raise: the version of the format that is allowed from now on; zero in others
//	 8  8  term: the term in which the entry was proposed
//	16  8  sequence: of this term, 1, 2, 3, ...
//	24  8  stamp: cluster time in nanoseconds since 1970
//	32  8  the highest id that was used up to this entry
//	40  8  decided: all ids below this one are those of jobs that were put before this entry,
//	       or never become jobs: the first id of the term
//	48     records
//
// Records are those of kinds full, update, delete and setting of package record, one behind the
// other up to the end of the data, with the salt of segment 0 of seed 0: there is no
// place in an entry where a client's bytes could be taken for a record. Only entries of
// kind records have any. The data has at most [MaxSize] bytes.
//
// In entries of version 2 there may also be records of kinds hold, close and numbers; full,
// update, delete and setting records with an origin; and updates of jobs that stay where they are.
// In entries of version 3 there may be records of kind policy as well, full records of jobs with
// terms, and updates of held jobs. Entries of version 4 have what those of version 3 have: when they are
// allowed, all members take trunks of gateways. In entries of version 5 there may also be policies of tubes that
// linger, and holds of no session.
//
// # Later versions
//
// A leader writes entries of a later version once all members can read them, and not
// before: so members are replaced by those of a newer program one by one, in any order.
// What says so is an entry too (Raise), so that all nodes agree on when, and a node that
// was away, or one with an older program, meets the raise before what it allows, and ends.
//
// The checksum is there although logs and connections have theirs, because it covers
// the way between them too.
package entry
