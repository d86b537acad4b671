// Package vfs is what the log needs of a file system, small enough that a test
// can stand in for it, with the operating system's as the real one.
//
// Logs take an [FS]: [OS] in a server, and that of package faultfs in tests, which cuts
// the power and fails calls on demand. What several packages need stands on top:
// [LockDir], [SyncDir], and the names of files in a series.
//
//   - Names are paths. Nothing that was done to a file or a directory is certain to be
//     on disk before its Sync has returned nil; a failed Sync leaves unknown what is.
//   - A file is written to by one goroutine at a time; all else may be called from any.
//   - Where space was allocated, writing needs no more of it.
package vfs
