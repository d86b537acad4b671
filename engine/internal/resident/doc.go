// Package resident lists the bodies of jobs that are in memory and in the journal, so that some of them can leave
// memory. It knows neither jobs nor bodies: an entry is what the journal was told, and may have become void since then,
// because its job has ended, or its body has left memory or lies elsewhere in the journal.
//
// # Use
//
//	var l resident.Lists               // of a shard, whose lock guards it; Open makes it
//	l.Room()                           // before anything is recorded: the next Add cannot fail
//	l.Add(resident.Entry{...}, above)  // the body has a place in the journal
//	for e, ok := l.First(durable); ok; e, ok = l.First(durable) {
//		l.Drop()                   // it leaves memory, or is void
//		l.Pass()                   // it stays: the others come first
//	}
//	l.Sweep(n, void)                   // some entries are looked at, and void ones forgotten
//
// # Order
//
// Fresh entries are those of bodies that came when memory was short. They come first, the oldest before the others;
// then all that were kept, the same way. So of a long queue the head stays in memory and the tail goes, and what was
// there before memory became short stays longest. A sweep, which there is when most entries are void, changes the order
// within a list.
//
// # Limits
//
// An entry takes 24 bytes, in chunks outside the collected heap. Add, First, Drop and Pass take constant time.
package resident
