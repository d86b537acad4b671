// Package weights is choices among the tubes that a session watches, by the weights that it has given them. It knows a
// tube by its place in the session's list, and asks for no more of it than how many of its jobs are reserved.
//
// # Use
//
//	w := weights.Of([]uint16{3, 1}, id)     // of a session that watches two tubes
//	i := w.Pick(tubes)                      // the place of that from which a job is to be taken
//	for c := w.Choice(tubes); ; c.Taken() { // or of as many as that many calls of Pick would return
//		i := c.Next()
//	}
//
// Choices follow the multiples of the golden ratio and no dice: so a tube gets its share of any few reserves in a row.
// Pick looks at each tube. A Choice looks at each once, and then costs O(log tubes) for each job.
//
// Weights belong to the session's loop. Pick and Choice are called, and a Choice is used, with the shards of all the
// tubes locked.
package weights
