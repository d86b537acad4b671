package ids

// Block hands out ids on one loop. Only that loop's goroutine may use it.
//
// All loops take their ids from one counter, Index.Last. The cache line of the
// counter, and that of the index in which neighbouring ids lie, move from core to
// core when several loops put at the same time. So a loop that puts often within one
// batch of commands takes blocks: 1 id at first, then 4, then the rest of a cache
// line of the index, 16 ids. On two cores that buys a fifth (BenchmarkParallelCycle with batches
// of 32).
//
// No block outlives its batch. What is left at the end goes back to the counter, or is
// retired if another loop has taken ids since. Therefore a put that is sent after
// another one was answered gets the greater id, on whichever connections they are, and
// a client alone sees 1, 2, 3, ... without gaps.
type Block struct {
	Index  *Index
	last   uint64 // the last id that was handed out
	end    uint64 // ids after last up to end are left
	takes  int    // how often the counter was asked in this batch
	single bool   // no more blocks in this batch
}

// idsInLine is how many ids have their entries in one cache line of the index.
const idsInLine = 16

// Take returns an id greater than after, and than all that this loop has handed out.
//
// A put takes the shard's last id for after, under the shard's lock: the ids of a tube's
// jobs ascend in the order of their puts, whichever loops make them, except for jobs
// whose bodies arrive in parts. When other loops put into the same shard meanwhile,
// blocks are of no use, and the rest of the batch goes without.
func (b *Block) Take(after uint64) uint64 {
	if b.last < b.end {
		if b.last >= after {
			b.last++
			return b.last
		}
		b.drop()
		b.single = true
	}
	counter := &b.Index.Last
	switch {
	case b.takes == 0 || b.single:
		b.last = counter.Add(1)
		b.end = b.last
	case b.takes == 1:
		b.end = counter.Add(4)
		b.last = b.end - 3
	default:
		for {
			now := counter.Load()
			b.last, b.end = now+1, (now+4)|(idsInLine-1)
			if counter.CompareAndSwap(now, b.end) {
				break
			}
		}
	}
	b.takes++
	return b.last
}

// GiveBack ends a batch.
func (b *Block) GiveBack() {
	b.drop()
	b.takes, b.single = 0, false
}

// drop gives up what is left of the block.
func (b *Block) drop() {
	if b.last < b.end && !b.Index.Last.CompareAndSwap(b.end, b.last) {
		b.Index.RetireUnused(b.last+1, b.end)
	}
	b.end = b.last
}
