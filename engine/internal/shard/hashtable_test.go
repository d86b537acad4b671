package shard

import (
	"testing"

	"trellis/engine/internal/hashtable"
)

// Ids that are the same in their lower bits are spread over the buckets all the same.
func TestIDsAtAnyDistanceFromEachOtherDoNotShareABucket(t *testing.T) {
	const n = 5000
	for shift := range 40 {
		var table hashtable.Table[keyed, byJobID]
		for i := range n {
			table.Insert(&keyed{id: uint64(i+1)<<shift + 7})
		}
		if got := table.Longest(); got > 16 {
			t.Errorf("of ids that are 2^%d apart, %d share a bucket", shift, got)
		}
	}
}
