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
// A standby is an engine that is fed and has no clients. When the node takes office, the
// same engine gets a journal and a reactor, and only then the clients' port is opened. When
// the office is lost the reactor is aborted and the engine discarded, because both have
// seen what may never be committed; the node then begins a new standby. So a process makes
// many engines and reactors, but never has two.
//
// The port that clients connect to is open while the node leads and at no other time. If
// it cannot be opened, as another process has it, that is tried again, and after some
// seconds the office is handed over.
//
// While the queue serves, each event loop and each of the engine's shards is asked every
// 250 ms for a sign of life. When one gives none for 2 s the node gives up its office. A loop
// that does not come back cannot be ended, so the process ends then (replica.ErrStuck), and
// with it the connections of its clients.
//
// # Control requests
//
// Beside those of package member they are those of package control.
package cluster
