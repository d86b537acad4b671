// Package hashtable is a table with linear hashing (W. Litwin, 1980): an insertion adds at most one
// bucket and a removal takes away at most two, so that no call rehashes more than a few entries. A
// table whose entries have gone takes no memory. Go's map takes more than twice as much for a key, and
// keeps all of it when entries go.
//
// Entries that share a bucket are linked by a field of their own. Who looks for a key goes from First on:
//
//	for k := table.First(hash); k != nil; k = k.next {
//		if k.key == key {
//			return k
//		}
//	}
package hashtable
