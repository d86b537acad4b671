// Package loads is which bodies are on their way from the journal into memory, and who waits for them. It reads
// nothing: what is to be fetched it hands out, and what came of it is told to it.
//
// # Use
//
//	var t loads.Table                   // t.Open(most, sender)
//	w := t.Wait(owner)                  // with a shard locked: a command needs bodies that are not in memory
//	w.Add(fetch, ...)
//	list := t.Asked(list)               // with no shard locked: what is to be fetched
//	t.End(fetch, nil)                   // the body is in memory, or nobody needs it any more; or why it cannot be
//	owner.Loaded(w)                     // the last of the wait's loads has ended
//	w.GiveUp()                          // or its owner has waited for too long
//	w.Leave()                           // the command was executed again, or never will be
//
// # Invariants
//
//   - A body that several want is fetched once.
//   - Whoever waits hangs on the load, not on the job: a wait ends, whatever has become of the job.
//   - A body that was loaded for somebody is awaited until the last of them has left: it must not leave memory.
//   - What waits are for is bounded, together with what clients are being sent: they are admitted first come, first
//     served, each whole or not at all. One that is alone is admitted, however much it is for, unless clients are being
//     sent three times that bound: slow ones make others wait for each other before they make them wait for nothing.
//   - What is fetched for waits is bounded, too: by twice that and 65,536 bodies, or by one wait. So nobody has more
//     and more fetched by leaving. It counts until it comes back, which the journal promises.
//   - A failure is known until the last who waited for it has left. Who comes then tries anew.
//
// # Locks
//
// The table has one lock, which is held for a moment, and taken after those of shards. Owners are called without it.
package loads
