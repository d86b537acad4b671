// Package cron puts jobs at the times that a file says.
//
// It keeps nothing: the key of each job names its entry and its time, so the server puts one job for
// a time, however many crons ask for it. A cron that starts, or has been without its server, puts
// again what fell into the last hour; jobs and their tombstones say what was there. So two crons
// may run the same file, and one may be killed at any time.
//
// # Times
//
// Fields are read as cron reads them: where neither day field begins with *, a day that fits one of
// them fits. When clocks change, an entry whose hours are given by numbers keeps to its promise of so
// many firings a day: a time that is skipped fires at the first moment after, and a time that comes
// twice fires the first time. Where the hour begins with * or has a step, real time counts, and the
// entry fires whenever a clock on the wall shows its time.
package cron
