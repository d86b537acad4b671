// Package arena keeps a queue's records and bodies in memory that the garbage
// collector neither scans nor counts.
//
// A [Pool] hands out blocks of one size from chunks that are mapped from the
// system, and names each block by a [Ref] of 32 bits. Which blocks are taken
// is kept outside them, in bitmaps, so a free page holds nothing and can be
// given back. Blocks are taken lowest first, which keeps the live ones together
// at the low end. A chunk that empties is discarded, except for one that is kept for
// the next allocation.
//
// [Bodies] stores byte strings of any length: small ones in pools by size
// class, large ones in mappings of their own.
//
// The pages of what was discarded go back to the system by [GiveBack], which takes
// long and is called when nobody waits.
//
// Nothing else here is safe for concurrent use: the owner's lock guards it. The
// memory that Bytes and At return may be read and written without that lock by
// whoever owns the block, until it is freed.
//
// Limits: 2^32-1 blocks in a pool; a body of at most 2^32-1 bytes.
package arena
