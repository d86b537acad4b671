// Package journal is what the queue and its log say to each other: plain values
// and errors, without any I/O, so that the queue can be built and tested without
// a log.
//
// The engine makes a [Record] of a job, or a [Setting] of a tube, and gives it to
// the log, which is that of one server (package binlog) or of several (package
// replica). It gets a [Pos], on which the reply depends, and a [Ticket] that it keeps
// with the job. Recovery gives the same values back.
//
//   - The last record of a job tells all that can have changed since the one before.
//   - Reservations are not on record: a reserved job is ready here.
//   - Times are those of the wall clock, nanoseconds since 1970, because a restart
//     begins the monotonic clock anew.
//   - A tombstone is the record of a deleted job that keeps its unique key.
//
// A name of a tube has at most [MaxTube] bytes, a key [MaxKey].
package journal
