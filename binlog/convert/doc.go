// Package convert makes another log out of what a directory holds: segments out
// of beanstalkd's own log (import), files of beanstalkd's out of segments (export),
// and new segments out of damaged ones (salvage).
//
// # Use
//
// A server that starts, with the directory locked, does
//
//	t := convert.Takeover{FS: fs, Dir: dir, SegmentSize: size}
//	imported, err := t.Import()             // nil if there was nothing to import
//	salvaged, err := t.Salvage(survey, gap) // of an inspect.Directory that found damage
//
// and an operator's tool
//
//	exported, err := convert.Export(vfs.OS{}, dir, to)
//	theirs, err := convert.Verify(os.Stdout, vfs.OS{}, dir)
//
// # Invariants
//
// An import or a salvage is built up in a directory of its own, takeover.tmp. The
// new log counts from the moment at which this is renamed to takeover.done. Its
// file "plan" has the name of the directory for the old files, then
// the names of those, one on a line; the other files are the new segments. Import
// moves all of them, and ends a move that a crash has interrupted. A crash before
// that moment leaves the old log as it was. No file is removed that holds a job.
//
// # Limits
//
// A conversion holds the states of all jobs in memory, about 200 bytes each, and
// one body at a time. Beanstalkd's versions 7 and 5 are read, and 7 is written.
package convert
