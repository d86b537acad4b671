// Package offline makes the directory of a member of a new cluster, without a node that
// runs: out of a server's binlog ([Init]), or out of the directory of a member of a
// cluster that has lost most of its members ([Recover]). It also makes a binlog of a
// running node's backup ([Backup]). And it looks into the directory of a member that has body files ([Verify], [Dump]).
//
// # What holds
//
//  1. What was on record is in the new directory: all jobs of a binlog as a server would
//     recover them; of a member the snapshot and all entries of its log. The last of these
//     may never have been committed. They are taken all the same, because any of them may
//     have been acknowledged: nobody is left who could tell. The clients of those that
//     were not have heard nothing, so that either outcome is right. What this member had
//     not received is lost.
//  2. The new cluster has an id of its own, and the new directory is its only member. Its
//     node is refused by the members of any other cluster, and refuses them.
//  3. The ids of new jobs begin more than [SkippedIDs] behind those on record: after a
//     backup was taken, or on members that are gone, others were given to clients.
//  4. Until the directory is complete and durable it has no mark, and a directory that has
//     entries or snapshots and no mark is refused by a node (package member).
//  5. A member's directory stays as it is. A binlog stays what it was, but for what any start
//     of a server on it does: a torn end is cut off.
//  6. Of a member whose files are damaged, Recover takes what is sound before the damage, if
//     it is told to, and tells what that leaves out.
//  7. Verify reads the current snapshot, each body that it refers to at its place, and all body files. Of those that no
//     snapshot names only sealed ones can be damaged: others are written to, or were when the power went. It
//     believes in damage that it reads twice, because a member may be running. It does not read the log's entries.
//
// The old cluster is not told. If other members of it still run, or are started again,
// clients can reach both, and both give out the same jobs: it is for the operator to see to
// it that they are not.
//
// # Limits
//
// The new directory takes as much space as the old one's snapshot and log, or as the
// binlog's live jobs. Memory does not grow with the number of jobs, but for what
// binlog.Open and entrylog.Open take.
package offline
