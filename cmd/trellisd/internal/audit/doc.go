// Package audit keeps a trail of what an operator may want to know later: who was let in and
// who was not, who has deleted, moved or stopped what, who was denied what, and what came of
// it. Neither bodies nor tokens are in it.
//
// Lines go to the log, where they have audit=true, and to a file if there is one, as a JSON
// object each. A goroutine writes them: event loops leave them in a queue, and wait for no
// disk. What does not fit into the queue is counted. So is what a client does too often,
// client by client, so that nobody can fill the disk, or hide what he does behind what
// others do.
//
// The file may be moved away at any time, as logrotate does: another one is made within a
// second of the next line.
package audit
