// Package engine is the queue: tubes, jobs, reservations, waiting workers,
// time-outs and statistics, as the beanstalkd protocol defines them. It is a
// state machine without I/O, clock or goroutines. Time comes in as an argument;
// what it wants from outside goes out through [Config] and [Waker]. So one set of
// scripts can drive it under a clock of its own, drive the whole server over a
// socket, and drive a real beanstalkd.
//
// # Use
//
// A server makes one engine, feeds it what its journal holds, and gives each of its
// event loops a [Loop]:
//
//	e := engine.New(engine.Config{Journal: log, ...})
//	f := e.Follow(now)                  // f.Full, f.Update, f.Delete, f.Setting: what is on record
//	f.Serve(log.NextID(), now)
//	l := e.NewLoop(waker)                // on each loop's goroutine from here on
//	l.Open(&session, now)               // for each connection
//	switch session.Execute(now, &cmd, &out) {
//	case engine.Done:                   // the next command
//	case engine.Wait:                   // none before Next has returned it and Resume returned Done
//	case engine.Quit:                   // send what is in out, then close
//	}
//	l.Refill()                          // after each poll
//	for s := l.Next(now); s != nil; s = l.Next(now) {
//		... s.Resume(now, &out) ...     // unless it is closed
//	}
//	session.Close(now)
//
// A standby is fed for as long as it takes, and then serves:
//
//	f := e.Follow(engine.Always)        // f.Full, f.Update, f.Delete, f.Setting: as others record it
//	f.Strict()                          // from here on, each record once and in order
//	for f.Tidy() { ... }                // between records: memory is given back
//	f.RecordIn(log)
//	f.Serve(nextID, now)
//	...
//	e.Hold(true)                        // no deadline is met until Hold(false)
//	e.Discard()                         // the loops have ended: all memory is given back
//
// Next is called until it returns nil after every batch of commands, when the loop was
// woken, and when an alarm has come. Replies wait until the journal is committed up to
// Output.Pos.
//
// # Structure
//
// Tubes live in shards. A shard has one lock, and under it everything that
// belongs to its tubes: their jobs, reservations and timers. A command on one
// tube takes one lock. A reserve over tubes in several shards takes their
// locks in the order of their numbers, so that it sees all of them in one
// moment and picks exactly the job that the protocol says.
//
// A client is a [Session], which belongs to one [Loop]: only that loop's
// goroutine calls its methods. A session that waits for a job stands in the queue of
// each tube that it watches. Whoever makes a job ready there claims the session by one
// atomic step, reserves the job for it, and puts it into its loop's mailbox.
// Time-outs and closes take the same step, so a session never gets two jobs, and no
// job goes to one that has left.
//
// The engine has two floors. Below is package internal/shard: what lies under the locks of shards. It knows no session
// and no loop, only a session's client (what it uses, watches and has reserved, and the claim on it), and the budget
// from which what it does is paid. This package is the floor above: sessions, loops, commands and the engine. It knows
// no lock, no job's record and no field of one.
//
// The floors meet at the operations of a [shard.Tx]. So a command's file shows what the command asks for, the
// operation, and the reply. What takes long is a value with a method Turn, which does as much as the round's budget
// allows. A test bounds how many names of the floor below are used here (floors_test.go).
//
// A session's word is its flags: those in special make Execute do more than to execute.
//
// # Locks
//
// They are taken in this order: account.Accounts.mu, Shards.life, Shards.walks, Engine.loopsMu, the shards by
// number, and then at most one of those that are held for a moment only: of the roster, the
// settings, the groups, the index of ids, the purses, the quotas, the roll, the numbers of loops, a loop's mailbox or
// alarm, and the arena. Waker.Alarm is called with the lock of an alarm held. A shard that does what is due
// may try the lock of one with a smaller number, and does not wait for it. Only operations of a Tx hold several
// shards, and none is begun while another one of the same goroutine holds a lock.
//
// # Another engine
//
// A client may go on in another engine that has the same jobs, if it has none: its session is detached
// from the one, which is held and then discarded, and attached to the other ([Detached]). It uses and watches
// what it did, waits until when it did, and goes on with a body of which a part has come.
//
// # Sessions on record
//
// What a session on record reserves outlives its server. While no loop has the session it is absent: what it
// holds, a shard.ReservationSet, is then in Shards.LoopNumbers, and its times to run do not end for a moment. Loop.GoOn
// makes that the new session's, without a look at any job. After Engine.CloseAbsent and Engine.EndNumber loops
// give it back, as a session that nobody carries. An id is in Shards.LoopNumbers until all that was under way for its
// session has ended, and is not opened before.
//
// # Connections
//
// All open sessions stand on one roll, by id. Only its loop knows what a session is. So
// a list of connections, or the description of one, goes from loop to loop through the
// mailboxes. Each loop describes its own sessions a few at a time, and the session that
// has asked goes on when all are described.
//
// # Looking from outside
//
// Metrics and the console call [Engine.Snapshot] and [Engine.EachTube] from goroutines of
// their own. These take the lock of one shard at a time and hold it while the numbers of
// some hundred tubes are copied, so that clients wait no longer for them than for each
// other. A [TubeSelection] keeps the first of all tubes in an order, and no more than these
// in memory. The numbers of one tube are of one moment.
//
// # Rights
//
// A session may do everything, unless it was opened with a [Grant] of rights to some
// tubes ([Loop.OpenGranted]). The grant is looked at before a command is executed: the
// right, the tube that the command names, and the tube of the job that it names, which is
// not found if it is another's. To a session without a grant that is one test of a bit. A
// session begins in the default tube; one without rights to that begins in an empty tube of
// the same name. So no session uses or watches a tube that its grant does not name, and put and
// reserve need not look. A grant does not change while a session is open. Commands that are
// denied, and those that an operator may want to know of later, are told to Config.Audit: see
// [Deed].
//
// # Accounts
//
// Teams that share a server may have accounts with limits (package account). Each tube, and the keys of each
// tube's name, count for an account. A put counts from its beginning, for the
// account that the tube has then, and goes over when it becomes a job.
//
// # Invariants
//
//   - Ids are 1, 2, 3, ... over the whole server, and none is used twice. A put that is
//     sent after another was answered has the greater id. Where several loops put at the
//     same time, some ids may be left out.
//   - A job leaves its tube only by move-job, by move-tube, and as a dead letter. Where the
//     tubes lie in two shards, both are locked. (In a standby a record may replace the tube.)
//   - A unique key has at most one holder in a tube. It is a job or a tombstone.
//   - Of a limited key no job becomes reserved while as many are as its limit says.
//   - Who takes the first ready job of a tube takes that of the fair key which comes first, and
//     lists are in the order of priorities and ids. In which laps keys are is not on record.
//     Of a group only the first job takes part, whatever fair keys the others have.
//   - A held job is fired once, and no job is held that was not when it was put.
//   - Sessions are served first come, first served, in each tube. If a job that was handed
//     over is gone before the reply, the session waits again, at the end of the queue.
//   - No deadline is met early. A command sees everything that was due before
//     it in the shards that it touches, however late the timers are; unless
//     thousands of jobs are due at once, for these become ready in turns.
//   - A tube that no session uses or watches and that has no job does not exist.
//   - Everything costs O(1) or O(log n) in the one queue that it touches, except
//     that reserve, and waiting, cost O(watched tubes), and listing costs what it lists.
//     Reserved jobs stand in queues of their sessions and not of their tubes. So list-jobs and
//     peek-tube of reserved jobs, where more than some hundred are reserved in the shard, and
//     delete-tube-jobs of reserved jobs, and flush-tube where there is one, look
//     at all jobs of the shard. So do list-jobs where more than some hundred jobs are in the
//     state, but for a first page of a hundred, and touch-all where a client holds more than
//     that in the shard.
//   - Nobody waits long for somebody else. What takes long (kick, lists, hand-overs and
//     time-outs of many sessions, the close of a client with many reservations) is done
//     in slices: under a shard's lock some hundred jobs, in one round of a loop as much as its
//     budget allows. Under a lock nothing waits for a disk, and no memory is given
//     back to the system.
//   - What a reply tells is on record up to Output.Pos; except that stats and list-tubes may
//     count what a crash undoes. A reply that shows a job depends on the record that made it
//     so, and one that says that something is not there on the last end of a job in the shard
//     (shard.dependsOn, dependsOnEnds). Without a cluster that is all. In a cluster another
//     server may have taken over before the reply: then a reply that shows state depends on
//     [Barrier] as well, unless a record of its own command stands behind that state, whose
//     commit tells the same (Output.ShowsState, Recorded).
//   - A command that finds no room in the journal has changed nothing and is executed again
//     when there is some.
//
// # Words
//
//   - attempt: a release or a time-out since the put or the last kick
//   - bulk: a command over many jobs of a tube
//   - candidate: a ready job that its limited key lets go
//   - claim: the atomic step that ends a session's wait
//   - complete: of a group, that no job has to wait for it
//   - cost: what something takes of a round's budget
//   - delete: end a job; remove: take out of a collection; free: give memory back; discard: not
//     keep what has arrived
//   - dispatch: hand ready jobs of a tube to waiters
//   - fire: make ready, or begin the delay of, what was held for a group that is complete
//   - group: jobs that others wait for; of limited keys, the jobs of one key and one limit
//   - held: delayed until a group is complete
//   - keyspace: the unique keys of a tube
//   - lap: once around the fair keys of a tube, in which each that has a candidate starts a job
//   - line: the fair keys of a tube that have candidates, first the one that comes first
//   - policy: what a tube's setting says
//   - place: a job's shard, and its record there
//   - purse: what a loop has in hand for its operations: quota, ids, memory for puts
//   - quota: memory that a loop may give to jobs
//   - reservations: what a session has reserved
//   - retire: say that an id will never be a job's again
//   - roll: the list of all open sessions
//   - round: what a loop does between two polls
//   - setting: a policy that was given to a tube's name
//   - subscription: a session's interest in a tube
//   - tombstone: what keeps the unique key of a deleted job
//   - turn: what a task does of its work in one go
//   - tx: how a goroutine works with shards, one operation after the other
//   - waker: wakes a loop that sleeps in its poll
//
// # Limits
//
// 16 shards; 268 million jobs in a shard; bodies of up to 2^32-1 bytes. A delay,
// time to run or pause of 2^32-1 seconds does not overflow. An account's rate is at most
// [account.MaxRate].
package engine
