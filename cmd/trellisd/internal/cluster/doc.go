// Package cluster makes a member of a cluster of the parts that know nothing of each
// other: a queue of an engine and a reactor, a node of package replica, its identity, and
// its connections to the others.
//
// # Use
//
//	q := cluster.NewQueue(cluster.QueueConfig{...})
//	m, err := cluster.Open(cluster.Config{Queue: q, ...})    // locks the directory, answers the others
//	err = m.Run(ctx)                                         // founds or joins, votes, and serves when it leads
//	m.HandOver(ctx)                                          // before ctx ends: somebody else leads
//
// # A queue's life
//
//	Standby --> Serve --> Retire --> Standby --> ...
//
// A standby is an engine that is fed and has no clients: those of this member are forwarded. When the node becomes
// leader, the same engine gets a journal and the member's reactor. When leadership is lost the engine is discarded,
// because it has seen what may never be committed, and the reactor is aborted for the same reason; the node then
// begins a new standby. So a process makes many engines and reactors, but never has two. The one exception is a
// leadership that is settled (replica.Leadership.Settled): its reactor goes on, with the port and the clients. If it
// was handed over, it forwards them to the next leader; if this node alone votes, they wait for its next leadership.
//
// The port that clients connect to is open while the node leads, and while it forwards clients. If
// it cannot be opened, as another process has it, that is tried again, and after some
// seconds leadership is handed over. A member that has reached no leader for 6 s closes it until it does.
//
// # Gateways
//
// While another member leads, a reactor without an engine forwards clients to it, from the moment
// at which all members know how (replica.VersionOfTrunks) and a leader is known. Each of its loops has
// a trunk to the leader: a connection that wire begins, and that a loop of the leader's reactor
// carries on. Before that the leader gives each loop a number, with which the ids of its sessions
// begin; a reactor has numbers of its own, so that no id comes twice, and keeps them while it leads.
// The numbers of the process before, and of the reactor before, are
// gone with that, when its trunks and its sessions have ended.
//
// When this node becomes leader, that reactor gets its engine, and clients go on. A loop's trunk ends when another
// leader is known, and it is dialled again until there is one: the reactor knows how sessions go on there. The leader
// takes a trunk when nothing is under way any more for the sessions of the one before, and tells an index of the log
// behind all that was (a fence): a gateway that has applied it knows what of its clients' commands was done. A leader
// that does not serve yet lets gateways wait. Members whose trunks are of version 1 know nothing of that: their clients
// end with the trunk, and what these hold with it.
//
// A loop that has had no trunk for 8 s is gone, by record, and so is one that has left: what its clients had
// reserved is ready, and none of its sessions comes back. It has reset them by then, or does when its own log says so.
//
// While the queue serves, each event loop and each of the engine's shards is asked every
// 250 ms for a sign of life. When one gives none for 2 s the node steps down, and
// the clients of the other loops are reset at once: so they wait 2.25 s and an election.
// Those of the loop itself wait until it comes back, or until the process ends 10 s later
// (replica.ErrStuck), because a loop that does not come back cannot be ended.
//
// The 2 s are those of a batch that is not committed, and of a begin that is not applied. A
// shorter time would take a machine that is out of breath for one that hangs: a leader
// would be replaced, all connections with it, by one that may be as busy. They are counted
// in ticks that the guard itself has seen, so that a process that gets no processor, or is
// stopped, is given the longer the less it runs; and a loop has turns of its own, in which
// no command takes longer than some milliseconds. The 10 s are not part of what clients of
// other loops wait for, and may be long: a process that ends has to load all jobs again.
//
// # Control requests
//
// Beside those of package member they are those of package control.
package cluster
