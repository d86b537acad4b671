// Package control is what the tool `trellis cluster` and the members of a cluster say to
// each other, in control requests of package wire: the requests, the answers, and the
// tool's side of the conversation. The member's side is in cmd/trellisd.
//
// # Requests
//
// A request is a [Request] as JSON, and its response a [Status]; before the response to a
// backup comes a stream of package snapshot. Requests and responses are bounded by
// wire.MaxControl. A version ignores what a later one adds.
//
//	{"op":"status"}                        how the member sees the cluster
//	{"op":"status","digest":true}          the same, with a digest of all jobs
//	{"op":"transfer","to":"n2"}            another member leads; without "to" the one that has the most
//	{"op":"add","node":"n4=HOST:PORT"}     a node becomes a member that votes
//	{"op":"remove","node":"n3"}            a member leaves the cluster
//	{"op":"backup","index":9134}           a snapshot with all entries up to index at least
//
// Every member answers status and backup. The other requests go to the leader; the other
// members refuse them with an error that names it. A leader that is asked to remove itself
// hands over, and refuses: the next leader is to be asked. A request that has ended with an
// error may be repeated.
//
// # The tool's side
//
//	c := control.Client{...}
//	v, err := c.Look(ctx, addrs, digest)        // asks these and all members that they know
//	v, err := c.Lead(ctx, addrs, request, done) // asks the leader, whoever that is by then
//	s, err := c.Leader(ctx, addrs)              // waits for a leader
//	err := c.Ready(ctx, addrs, names)           // and until these members, and all that answer, can lead
//	err := c.Backup(ctx, addr, index, w)
//
// Status is for everybody whom the transport lets in; for everything else the certificate has to
// be an administrator's (see package wire).
package control
