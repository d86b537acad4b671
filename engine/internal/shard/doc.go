// Package shard is the lower floor of package engine: tubes with their jobs, reservations, settings, keys and timers,
// each under the lock of its shard. It knows no session, loop or command. It has no clock, file or goroutine: time
// comes in as an argument, and what it wants goes out through a [record.Journal] and the wakers and clients that it
// is given.
//
// # Use
//
//	var shards shard.Shards             // of an engine; Init makes it
//	var tx shard.Tx                     // of a loop, or of whoever only looks; Begin makes it
//	tx.Arrive(now, client, ...)         // a session's client uses and watches the default tube
//	err := tx.Release(now, id, client, pri, delay, out)
//	out.Answer(err, codec.ReplyReleased)
//
// A [Tx] does one operation after the other. Each locks the shards that it needs, does all that
// belongs to it, and unlocks them, which hands jobs over, wakes loops and fires groups: Release looks for
// the job, decides what becomes of it, records that, and dispatches its tube. What takes long is a [Work],
// which does as much in a turn as the round's budget allows. No record, no field of one and no lock leaves the package.
// An operation that returns an error has changed nothing. What its answer depends on is noted in the Output.
//
// A [Client] is a session in the sight of shards. Only its loop's goroutine hands it to operations. Whoever makes a job
// ready at a tube where a client waits claims the client by one atomic step, reserves the job for it, and delivers it
// with the shard's lock held.
//
// # Structure
//
// A job's state changes by shard.requeue alone. Commands, deadlines, recovery and standbys call it by
// shard.apply, which takes a description of what the job will be (change.go). Commands record the
// description in the journal first. Reservations, and delays that end, need no description. Whoever has
// made a job ready, or ended a reservation, dispatches its tube before the lock is released: that hands
// ready jobs to waiters. Only touch, raised priorities of jobs that are not ready, and the ends of jobs
// go another way.
//
// Most jobs have no tags, and most tubes no setting and no fair keys. These are plain: one word of
// the tube and one of the job say so, and what happens to a plain job asks for both once and looks at no
// feature (plain.go).
//
// Job records lie in slabs outside the collected heap, refer to each other by
// 32-bit index and hold no pointers; bodies lie in size classes (internal/arena). Every
// queue is a list or a heap, every deadline is in a timing wheel (internal/queue).
//
// # Settings
//
// A tube may have a setting, which says how its jobs are handed out and what becomes of those that
// fail. Settings belong to names: they lie in the shard of the name, and a tube refers to what its
// own says, its policy. What a setting changes is put in force by shard.putInForce, also of a
// standby. Where other members of a cluster could not read a setting, it is refused
// ([record.Log]).
//
// # Shut tubes
//
// A tube may be shut, by a pause, or because its setting limits how many jobs start in a time or are reserved at once
// (gate.go). Its timer is armed for the end of that when it shuts while somebody waits there, and when somebody begins
// to wait while it is shut. So no client goes on waiting when a tube has opened.
//
// # Dead letters
//
// A policy may limit the attempts of a job, that is releases and time-outs since the put
// or the last kick. A job that has used up its attempts is buried, in the dead tube if the policy
// names one. A release takes the locks of both shards in order. A
// time-out comes while its shard is locked, perhaps with others: it waits for the lock of the
// dead tube's shard only if that has a greater number; otherwise, if the lock is taken, the
// time-out comes a moment later. Copying a large body counts as many time-outs.
//
// # Expiry
//
// A job may be started until so many seconds after its put (expiry.go). What expires in the moment in which a delay or
// a pause ends is handed to nobody. A dead tube is reached as by a time-out. A standby lets nothing expire: it is told
// of the delete, or of the dead letter.
//
// # Keys
//
// A job that was put with tags has keys (keys.go): a unique one, which no other job of its tube has, a limited one, of
// which only so many jobs of the tube are reserved at once (limitedkeys.go), and a fair one, by which jobs share their
// tube with those of other keys (fair.go). A deleted job may leave a tombstone, which keeps its unique key for some
// time (tombstones.go). The other tags of a put are the job's terms. They lie beside its keys, go along with the job,
// and are refused while not all who read the journal can read them.
//
// # Weights
//
// A session may give the tubes that it watches weights, and have its reserves choose by them
// instead of by priority (internal/weights). The weights lie beside the session, in a map of its loop that a bit
// of the session says to look at. A session that waits is handed what comes first, by whichever tube.
//
// # Groups
//
// A job may be a member of a group, and one that is put to wait for a group is held while that has members, or members
// that are not buried (held.go): held is a state, to clients a delayed job without a time. It is looked at only when
// the job is put. Groups span shards, so what these have in common are counts, under locks of their own. They change
// when a member is put, is buried or is not any more, and ends, and not when it moves. What was put to wait since a
// group was complete belongs to another epoch of it, and stays held. A server that begins to serve fires what is
// complete then, so nothing is lost if the one before it did not come to that.
//
// # Bodies beyond memory
//
// With Limits.Bodies, bodies leave memory that are in the journal for certain, when somebody outside calls Evict
// (resident.go); those of a member of a cluster leave for files (spill.go). The job is cold then: its state, its place
// in queues, and all that happens to it are as before. What needs its body waits for that (loading.go), and what was
// loaded does not leave again before that has gone on. A job whose body cannot be read is buried by whoever reserves
// it. What is reserved next of a tube is read ahead (readahead.go).
//
// # Locks
//
// The shards are locked in the order of their numbers. Before them come account.Accounts.mu, Shards.life and
// Shards.walks; after them one of those that are held for a moment only: of the roster, the settings, the groups, the
// index of ids, the purses, the quotas, the loads, the numbers of loops, and the arena. A shard that does what is due
// may try the lock of one with a smaller number, and does not wait for it. Only operations of a Tx hold several
// shards, and none is begun while another one of the same goroutine holds a lock.
//
// Who is no loop, as compaction that calls Migrate, brings no time. So under its lock is done what was left over when
// the lock was last taken, and nothing else. That is bounded and waits for nothing, as with every other lock, and whom
// it wakes is woken when no lock is held. Compaction itself holds none of the journal's.
//
// # Tests
//
// Most tests drive sessions of package engine and look into shards, among them those of commands. What they use of that
// package is declared in engine_test.go and filled in by driver_test.go, as it cannot be imported here. A test that
// looks at sessions alone, or measures them, stands in package engine.
//
// For invariants, limits and words see package engine.
package shard
