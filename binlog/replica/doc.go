// Package replica makes several servers one. Each of them is a [Node]: a member of a raft
// group (go.etcd.io/raft/v3) that keeps a copy of the queue. One leads and executes
// commands; the others follow, and take over when it is gone. Nothing that the leader has
// acknowledged is lost as long as most members keep what they have on disk.
//
// The package knows nothing of commands, connections or timers: what it replicates is a
// [Queue], which its owner makes of an engine and a server.
//
// # Use
//
//	n, err := replica.Open(options)      // reads Dir/entries and Dir/snapshots
//	t, err := wire.New(wire.Config{Handler: of n, ...})
//	err = n.Run(ctx, t)                  // until ctx ends, or the node cannot go on
//
// Before Open the owner has locked Dir and settled who this node is (package member). A
// founder has written the initial snapshot (snapshot.WriteInitial): index 1, term 1, all
// founders as voters, no jobs. A node that joins has no snapshot.
//
// # Glossary
//
//	entry           an item of raft's log; it has an index and a term
//	term            raft's count of elections; one node at most leads in each
//	batch           the records of some changes, which become one entry (package entry)
//	leadership      the time in which a node leads in one term: a [Leadership]
//	step down       to stop leading by choice; to be deposed, because raft says so
//	hand over       to stop leading in favour of a member that is named
//	serve           what the queue does while its node leads: it executes commands
//	standby         the queue of a node that does not lead, fed with entries
//	retire          to end the queue's service and reset its connections
//	unit            a batch or a read round; units have positions, and end in their order
//	read round      raft's question to a majority whether this node still leads
//	seal            to close a batch and give it its header; it is proposed then
//	window          what may be on its way to a commit at a time
//	stamp           the leader's time in a batch
//	cluster time    what the stamps say, in nanoseconds since 1970
//	snapshot        files with all jobs as of an entry (package snapshot)
//	walk            the taking of a snapshot of a queue that changes meanwhile
//	pointer         the file that names the current snapshot
//	trim            to remove entries that the current snapshot has
//	mark            in the entry log: everything before it was synced
//	member          a node that belongs to the cluster; a voter, or a learner
//	incarnation     the number of one life of a directory (package member)
//
// # The goroutines of a node
//
//   - raft (consensus, inbox): owns raft's state. It takes messages of peers, responses of
//     the two others, ticks and calls from the inbox, passes them to raft, and hands on
//     what raft wants done. It starts and ends leaderships and seals batches. It waits for no
//     peer, and for the disk only while it reads old entries that are not in memory.
//   - writer: takes raft's MsgStorageAppend, stores all that wait with one sync, and lets
//     their responses go, in order: votes and acknowledgements to peers, the rest to raft.
//     A message without responses waits for one that has some, or until the writer idles.
//   - applier: takes raft's MsgStorageApply, in order, and whatever else has to happen
//     between two entries. It owns the standby, and is the only one that makes, feeds,
//     serves and retires the queue.
//   - walk: takes a snapshot. There is at most one.
//   - spiller (bodies.lead): lets bodies leave memory while the queue serves, with Options.Bodies. Of a standby the
//     applier does it.
//   - space: asks every second how much of the disk is free, and keeps a reserve. The answer may
//     take long.
//   - watchRaft: watches the raft goroutine. While a read keeps that one waiting, the
//     followers hear no heartbeats and elect another leader. So after 2 s watchRaft ends the
//     leadership in its place, and the clients' connections are reset. After 30 s the node ends.
//
// The queue calls a Leadership from any goroutine; the transport calls a Node from any.
// Nobody waits for the raft goroutine but the applier, for a change of the members, callers
// of Transfer, Add and Remove, and the transport's goroutine that has received a snapshot.
// The raft goroutine waits for none of these, so nothing can wait in a circle.
//
// # The way of a change
//
//  1. The queue executes a command and appends its record to the open batch, under the
//     lock that orders the job's changes. The reply depends on the batch's position.
//  2. The raft goroutine seals the batch when the window has room (4 batches, 2 MiB), and
//     proposes it, once. While two batches or more are on their way the open one grows until
//     it is as long as they are on average, or until one of them is committed: a batch costs
//     each member a sync and some wakes, however short it is. Read rounds before it do not
//     wait for that.
//  3. Raft sends the entry to the followers while the writer stores it.
//  4. When most members have the entry on disk, it is committed; once this node is one of
//     them, the applier gets it, and the leadership's Committed moves. The reply leaves.
//  5. Followers learn that it is committed, with the next entries or after a tick of 50 ms,
//     and apply its records to their standbys. No client waits for that. Of a change of the
//     members they learn at once, because what a majority is depends on it, and of what
//     clients wait for when the leader has changed (postpone).
//
// # Why nothing is lost and nodes do not diverge
//
// Raft gives: all nodes get the same entries in the same order, an entry that was
// committed stays, and there is at most one leader in a term. It assumes that votes and
// acknowledged entries are on disk (package entrylog, and the order of the writer's
// responses) and that a member's id is never used with another's log (package member).
// The rest is ours:
//
//  1. The standby of every node is a function of the entries alone: records are applied
//     in order; what depends on a clock, or on a client, happens at the leader, and
//     becomes a record. A batch is applied if and only if the term in its header, in which
//     it was sealed, is the term of its entry. The test uses nothing but the entry, so
//     that all nodes agree on it.
//  2. The leader's queue is ahead of the entries: it has executed what is not committed.
//     It is the same function of the entries plus its own batches in their order, because
//     it began as a standby to which everything up to its first entry, `begin`, was
//     applied (Queue.Serve comes then, and not before), and because from there on all
//     entries that are applied are its own: the applier hears that the leadership has
//     ended before it gets an entry of another term.
//  3. A batch is proposed while raft leads in the batch's term; the raft goroutine looks
//     in the same step in which it proposes. So the entry has that term. It is proposed
//     once: if raft refuses it, or it is not committed in 2 s, the leadership ends.
//     Batches of a term are numbered, and a node that applies another number than the
//     next one ends (ErrDiverged), as does a leader whose own batch is ignored.
//  4. When a leadership ends, nobody knows which of the last batches will be committed.
//     So a queue that has served is thrown away, whatever state it is in, and made anew from
//     snapshot and log. One that has not served yet is still the standby that it was.
//     Connections are reset without a word: the outcome of what was not yet acknowledged
//     is unknown, and said to be.
//  5. Raft's own view of who leads can change twice between two looks. So the leadership is
//     compared by term, and not only by role.
//  6. The ids of a term begin behind the highest that any entry up to its `begin`
//     names, and an entry names those of its jobs. A client is told an id only when its
//     entry is committed, so no id that a client has seen comes back. Each batch names the
//     first id of its term (entry.Header.Decided), and standbys refuse a job that comes
//     into being with a lower one.
//
// # Why no reply is false
//
// A reply leaves when Leadership.Committed has reached the position that it depends on. With a
// change that is the batch. What only reads depends on Leadership.Barrier, taken after the
// command was executed. Units, which are batches and read rounds, have positions in the
// order in which they were begun, and Committed reaches a unit when it and all before it
// have ended well:
//
//   - A batch that was not yet sent when Barrier was called. Say that another node had
//     been elected before the call, and had committed something that the reply should
//     have shown. Its log had at its election all that it would ever have of this node's term.
//     The batch was proposed later, so it is in no log of a later leader, and is never
//     committed. The other way round: its commit proves that there was no such node.
//   - A round that was not yet begun: raft's ReadIndex asks most members whether they
//     still follow this leader (ReadOnlySafe; no lease and no clock). The answer counts if
//     this node leads in the round's term when it handles it: a deposed node's question
//     would be forwarded to the new leader, whose answer says nothing. It counts when all
//     batches before it are committed: the read may have seen them.
//
// Several questions share a round that was not begun, and a batch that follows a round
// that was not begun proves it. A leadership that is over never moves Committed again;
// positions go on from leadership to leadership and never come twice in a process.
//
// # Leaderships
//
// Raft wins an election; the raft goroutine sees it (lead) and proposes `begin`. The
// applier applies everything up to `begin` and starts the queue, and batches are sent. Raft
// shows another term or role; the raft goroutine ends the leadership (deposed), and the
// applier retires the queue and makes a standby. Meanwhile the node votes, but does not
// campaign; nor does it after a start, until it has applied what it knew to be committed.
//
// A leader that cannot do its work steps down: `begin` not applied within 2 s, a batch or a
// round that has not ended within 2 s, or a queue that does not answer (its owner notices,
// and calls Resign). Heartbeats alone, which need no disk and no queue, would keep it the
// leader. It raises its own term, which any node may do at any time as a candidate does, and
// is then a follower like others. It does not campaign for 2 s, and twice as long each
// further time, up to 8 s, as nobody else may be able to lead; a leadership that lasts a
// minute ends that. It does not step down while most disks have not answered for a second,
// because nobody could be elected then, nor commit anything: when they go on, so does it. Nor
// does it while entries arrive at a follower, however slowly: each counts the bytes that come,
// and says so in its answers to heartbeats.
//
// A member has all of the log soon after its start, and cannot lead before it has made its
// queue of it, nor soon after it has led. It says so to the leader (report), and nothing is
// handed over to it meanwhile.
//
// A transfer (Transfer, and Remove of the leader): the queue stops executing (Queue.Hold),
// all that it has executed is committed and given to the system as replies, and only then
// raft tells the other member to campaign. So every client that takes its replies has
// them, and nothing of them is uncommitted: the leadership is Settled, and they may go on.
// If that one has not taken over within an election's time, it is told once more; then the
// queue goes on in the same leadership.
//
// A node that alone votes can step aside (StepAside): it does the same, ends its leadership, makes its queue
// anew, and leads again. Of such a leadership nothing is uncommitted (Settled), so the next queue has
// the jobs of this one, and clients need not be reset. After any other end nobody knows.
//
// # Cluster time
//
// Each batch has the leader's time. A node takes for the time that of the last batch, and
// what has passed here since it was applied; a new leader goes on from there, so that time
// never goes back, nor beyond the last leader's, and clocks are used to measure what passes,
// never to tell what time it is. As a follower may apply an entry late, delays and times to
// run may end late by as much after a change of leader, and never early. The one exception
// is a node that has no entry of a leader that it has heard since its start: there was an
// outage of unknown length, and it takes its wall clock if that is later. An idle leader that
// has followers sends an empty batch every 10 s, so that a node that starts knows the time
// before it may have to lead.
//
// # Snapshots
//
// A node takes a snapshot when the entries behind its last one are longer than that one and
// than 1 GiB, and when a backup or a new member needs one. The queue goes on meanwhile
// (walk): N is the last entry that was applied when the walk begins; the walk writes each
// job as it is when it comes to it; E is all that was appended when it ends; M is the last
// entry applied once E is committed. The records
// of the entries in (N, M] follow. They replace whatever of them the walk has met, and
// what it has met is no later than M, so the result is the queue as of M. The walk ends at
// the highest id that the entries up to N name: all of a later job is in (N, M]. So the walk
// ends however fast the queue grows. Header, term and members are as of M. The snapshot is
// void if the queue changes its role or is replaced; the walk then ends with the turn.
//
// The queue is not given up before a call of Queue.Walk has returned. So the walk waits for
// no disk meanwhile: it collects the jobs of a turn, and writes them when the call is over.
// If the disk hangs then, the leadership ends without it, and the walk gives its snapshot up
// when the disk answers.
//
// The settings of tubes, and the numbers of loops, are written behind the jobs, as they are
// at that moment, and the records of the entries in (N, M] put them right as well.
//
// Then, in this order, each durable before the next: the files, their directory, the
// pointer; then the log may begin behind M (retain). So the directory needs the old snapshot,
// the new one, and the log. Each snapshot is about as long as the live jobs, and so is the log,
// or 1 GiB if that is more, beside what comes while a snapshot is taken. Entries that a live
// follower still lacks stay as well, until the log is three times as long as that.
//
// A follower that lacks what the log does not have is sent the current snapshot, at an
// even rate that rises with what is written meanwhile (paced), so that the leader goes on
// to serve. The follower receives it into files, waits until its applier has nothing to do,
// so that no older entry changes the members afterwards, and passes the message to raft; the
// writer sets the pointer and empties the log; the applier makes a new standby. A snapshot that was taken
// before a member was added is of no use to it: a new one is taken then, also if the member
// was one before, and was removed without having heard anything.
//
// While a snapshot is taken or sent it competes with clients for processors and disk. So at
// most 1 MiB of it, or one record, is synced at a time, and a walk works in turns that are
// bounded in jobs and bytes, and sleeps after each for as long as that has taken (see turns).
// Yielding the processor is not enough. Nor is it enough that one goroutine can run beside
// the event loops: see spareProcs in cmd/trellisd.
//
// What clients of a leader wait for meanwhile was measured: see cmd/doc/limits.md, and "make
// scale SCALE=snapshot". A disk that the leader shares with a follower that receives a snapshot
// keeps everybody waiting: up to 0.45 s for a sync of 4 KiB by a process that does nothing else.
//
// # Bodies in files
//
// With Options.Bodies, bodies that do not fit into memory are in Dir/bodies only (package spill), each node's for
// itself: members tell each other only of which ids they have bodies there. The body files have one owner at a time,
// the queue's present engine (bodies.begin). The one before is given up by then, and the places that it spilled to
// behind the snapshot are forgotten: those bodies come again with the entries.
//
// A walk tells of places, and the files are sealed when it ends; their list is in the snapshot. They are removed
// when nobody refers to them, no list of the current snapshot has them or of one that is read or sent, and they were
// empty before the walk of the current snapshot began. Whoever removes holds the lock of walks (walkLock): a walk
// that was given up may still make its snapshot current. At a start nothing is removed before the snapshot was read
// whole.
//
// A standby that is above the limit spills before it applies more, and waits while the disk takes nothing. Without
// Options.Bodies all bodies are read into memory, and a snapshot is taken without them, so that the files go.
//
// A member with Options.Bodies says so (report), and is asked which bodies it has before it is sent a snapshot that
// names body files. The applier lists them (bodiesHere): bodies that are in files, as of the last entry that was
// applied, and that are held there until the snapshot is installed or not needed. A body in memory goes with the
// standby, so that it does not count. All other members are sent all bodies, which are read twice for it (plain).
//
// # Reservations on record
//
// Those of a session on record are holds: who has the job, until when, and how often it was
// reserved. They say what is, so they may come twice, and the last record of a job counts, whatever
// was before. What does not fit is counted (engine.Engine.Contradictions) and ends no node: it is
// applied when it is committed, and the reply has left. Sessions on record are those of clients that
// other members forward, and, from a transfer on, of the leader's own. They outlive leaderships: the next
// leader has what they hold, until it hears of them or their loop's number is gone.
//
// A record that a client's command makes names the command: the session, and where in its input it
// ends. So a member learns from its own log what its clients' commands have done (Queue.Applied), once:
// an entry that is applied anew, to a queue that is made again, tells nothing. What was executed before a fence
// (Fence) is in the entries up to it, or nowhere.
//
// A snapshot has the hold behind its job, but none of a session whose end is on record: that
// session gives back in turns, and if the record came before N, nothing in (N, M] would end the hold.
// The greatest number that a loop was ever given is kept although nobody has it: no session's id
// is used again.
//
// # Members
//
// Changes are raft's, by joint consensus, one at a time. A new member learns, catches up,
// and then votes. A change is refused unless most of those who would vote have answered
// since it was asked for. A member that was removed ends: by the entry, by the leader's
// last heartbeat, which carries the commit of that entry, or because another member that
// has applied more refuses it. A member that a node does not know may be one of which it
// has not heard yet; package wire tells these from those who were removed.
//
// # Messages between members
//
// They are raft's: MsgApp and its response, MsgHeartbeat and its response (also for read
// rounds), MsgPreVote, MsgVote and their responses, MsgTimeoutNow (a transfer), MsgSnap
// (with files). All others are discarded; above all MsgProp, because a proposal that comes
// from elsewhere is tied to no term, and MsgReadIndex. A response to a heartbeat has
// what its sender tells of itself (report), in fields that raft does not look at there; a heartbeat
// has in Index up to where the leader has heard its receiver acknowledge the log (see remind).
//
// # Upgrades
//
// Members are replaced by those of a newer program one by one: the followers, then, after a transfer, the old leader.
// Entries stay as the oldest program reads them. When all members have told a leader that they read a later version,
// it proposes an entry that says so (package entry, Raise), and from there on entries may have it: in version 2,
// reservations. From version 4 on, members that do not lead forward clients to the one that does, whose trunks they
// all know. A member with an older program that comes back ends when it meets that entry, or a snapshot behind it.
//
// # What ends a node
//
// Run returns an error when it cannot go on: a disk that cannot store entries or a snapshot
// of the leader's, or that does not answer, a queue that does not end its service within
// 10 s of the end of a leadership, or 3 s after the node is told to end, damage, an entry
// that it cannot read or that contradicts what it has, a standby that refuses a record, its
// removal, or the loss of entries that it has acknowledged. It does not try again: to go on would be to guess.
//
// A full disk is no failure. The writer first removes the reserve, and puts are refused from then on, so that
// the log has room for what is on its way, and for deletes and reservations up to the next snapshot. When that is
// used up too, it waits for space, and a leader that waits for 2 s steps down. A snapshot frees what the log has
// of jobs that were deleted, so one is tried every 30 s. Nor is it a failure if a snapshot of the node's own
// cannot be taken: the log keeps what is behind the one before. Who waits for it is told, and for 5 s no other is
// taken because somebody wants one.
//
// # Limits
//
// Memory: 64 MiB of records that are not committed, and a quarter of Options.Bodies at most (then journal.ErrRoom,
// but deletes, and what is recorded of sessions, are taken); the entry log's cache of 64 MiB; 16 MiB of entries on
// their way to each follower; 64 MiB of messages that wait, and 1,024 messages whose answers wait for the disk; 16
// MiB of entries that are being applied; 1.25 MiB of records, or twice the largest, of a snapshot that is taken. A
// follower takes no more entries while it has not applied 64 MiB of what it has stored, and some of that is
// committed. A batch has 512 KiB, or one record.
// What a cluster should do on paper is in cmd/doc/limits.md.
package replica
