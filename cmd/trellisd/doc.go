// Trellisd is a work-queue server that speaks beanstalkd's protocol.
//
// This package puts the server together: it reads the command line, opens the
// sockets, gives up root's rights, replays the log into the engine, has the reactor
// serve clients, and answers signals. It starts in beanstalkd's order: the command
// line, the sockets, the user, the log, the service. So a port in use is reported
// before an unknown user, and an unprivileged user can serve a privileged port. Files that
// the command line names are read as that user, before the log: one that the user could not
// read again later is reported at the start.
//
// A member of a cluster opens the socket for its peers, becomes the user, and then opens the
// clients' sockets only to see that it can. It serves clients while it leads; package
// internal/cluster makes an engine and a reactor whenever it becomes the leader.
//
// # The project
//
//   - engine is the queue: a state machine without clock, sockets or goroutines. engine/script runs
//     the specification, which is scripts of what clients send and must receive.
//   - codec is the wire format; reactor has the connections on event loops, and TLS.
//   - binlog is the log of one server, binlog/replica that of several, on go.etcd.io/raft. Below them:
//     the formats of files, conversion, inspection, and a file system that fails on demand.
//   - cmd/trellisd/internal has what surrounds the queue: command line, sockets, certificates, rights,
//     audit trail, files that are loaded again, cluster, metrics, HTTP. cmd/trellisd/deploy has units, package,
//     image, dashboard and alerts; cmd/doc the documents.
//   - Tests of the whole server, as a process that clients talk to, are in folders of their own: process (one
//     server), cluster (members), crash (kills and disks), faults (what clients see while members fail) and soak
//     (much, and for long). They start servers by internal/servertest and clusters by internal/clustertest.
//   - cmd/trellis is the operator's tool; cmd/internal what it shares with the server: the client, the
//     console, the questions to a cluster's member.
//   - bench puts load on servers, keeps books of every job, and compares servers.
//
// Run trellisd --help for the command line, the signals and the exit codes.
package main
