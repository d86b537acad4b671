// Package replica makes several servers one: a queue's changes are replicated by raft
// (go.etcd.io/raft/v3), and the member that leads serves.
package replica
