// Package index is the format of index files: what a restart needs to know of a segment of the log without the
// bodies of its jobs. It has bytes in and bytes out, and no file.
//
// # Use
//
//	b := index.NewBuilder(&header, boot)
//	b.Add(offset, rec)                    // each record of the segment, in order
//	file = append(file, b.Take()...)      // now and then
//	file = append(file, b.Finish(used, index.Tail(segment, used))...)
//
//	x, err := index.Open(file, size, &header)
//	err = x.Read(index.Ends, tell)        // the records again, full ones as heads (see package record)
//
// A Builder, an Index and what it reads from serve one goroutine each. An index may be lost at any time, and is never
// changed: whoever has none reads the segment. Whether one that is sound is believed, its reader decides.
//
// # The format, version 1
//
// All integers are little-endian, CRC is CRC-32C. A file is a header, blocks, and a footer. The header has 48 bytes:
//
//	 0  8  "TRELIDX\n"
//	 8  4  version, 1
//	12  4  seed of the directory
//	16  4  index of the segment
//	20  4  CRC in the segment's header, byte 76
//	24  8  position of the segment's first byte
//	32  8  number of the machine's start if the run that made the index does not sync, otherwise 0
//	40  4  zero
//	44  4  CRC of the 44 bytes before
//
// A block has items of one kind, in the order of the segment, up to 64 KiB and the item that exceeded them:
//
//	0 states  full records without bodies, updates, holds, settings and policies
//	1 notes   settings and policies again, and all other records but deletes; of marks the last only, at the end
//	2 ends    ids of deletes, 8 bytes each
//
// An item of states and notes starts with 8 bytes. That of a full record is
//
//	0  1  1; 17 if it has counters
//	1  1  byte 68 of the record: state and flags
//	2  2  the number of the tube's name in this block, from 0 on
//	4  4  where in the segment the record starts, in units of eight bytes
//	8     bytes 8 to 47 of the record; with counters bytes 48 to 67, which otherwise are zero; what stands
//	      before the tube's name; with keys or terms their length, 2 bytes, and they
//
// so that a job without counters, origin, attempts, keys and terms takes 48 bytes. A tube's name comes before the first
// item that needs it:
//
//	0  1  15
//	1  1  length of the name
//	2  6  zero
//	8     the name
//
// In the file "jobs" of a snapshot (see package snapshot) full records are in other files than the segment. There an
// item comes first in each block, and wherever the file changes:
//
//	0  1  13
//	1  3  zero
//	4  4  number of the file in which the records that follow are
//
// All other items are
//
//	0  1  kind of the record
//	1  1  zero
//	2  2  its length without its first eight bytes
//	4  4  where in the segment it starts, in units of eight bytes
//	8     bytes 8 on of the record
//
// The footer has 16 bytes for each block, in their order, and 32 more:
//
//	0  4  length of the block
//	4  4  kind of the block
//	8  4  number of records in the block
//	12 4  CRC of the block
//
//	 0  8  used bytes of the segment
//	 8  4  CRC of the last 4096 of them, or of all if they are fewer
//	12  4  number of blocks
//	16  4  zero
//	20  4  CRC in the index's header, byte 44
//	24  4  CRC of the blocks' entries and the 24 bytes before
//	28  4  "TIDX"
//
// # Limits
//
// An origin of a delete is left out: indexes are for the log of one server, which has none. Programs that know no
// indexes ignore them.
package index
