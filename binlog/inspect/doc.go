// Package inspect reads the log in a directory and changes nothing: what is there,
// whether it is sound, torn or damaged, and what it says, for a server that starts
// and for people who look.
//
// # Use
//
//	survey, err := inspect.Directory(fs, dir, nil) // what Open works on
//	err := inspect.Verify(os.Stdout, vfs.OS{}, dir)
//	err := inspect.Dump(os.Stdout, vfs.OS{}, dir, false)
//
// # Torn or damaged
//
// The segments are read from the oldest that is needed, each up to its end
// record, the last one up to where only zeros follow. An offset that holds no sound
// record, or where a segment or its end is missing, is damage if anything that
// can be read behind it (a header, a mark, a start or stop record, found by
// trying every eighth byte) says that it was on disk. Otherwise it is what
// a crash has left of writes that were not synced: the log ends there. A record or a
// header that the system cannot read, and a right checksum over what cannot be true, are
// damage too. A log that is never synced knows of nothing that is on disk for certain, so
// that in it only the last segment can be torn, and a loss of power may leave it
// damaged.
//
// Segments of two logs are neither: which of them is to be used only their owner knows.
//
// Two things go unnoticed. A bit that flips in the last batch before a crash,
// which no later record calls durable, is taken for a torn end. And if somebody
// removes the newest segments, nothing is left that tells of them.
//
// # Indexes
//
// [Indexed] takes what the index of a segment says for what its records say, if the index is whole, has the segment's
// header, length and last bytes, and either a header or the last segment calls all of it durable, or the index is
// of a run that never synced on this start of the machine. The last segment is always read. Verify compares indexes
// with what the records of their segments make.
//
// What a member of a cluster has beside its log is in such files, too: package offline reads them with DumpPart and
// DumpIndex.
//
// # Limits
//
// A survey has memory for the ids that were deleted, a fraction of a byte each,
// and none for jobs. It takes one pass over all files. Verify and Dump may be used
// while a server runs; Directory may not, without the directory's lock, since it
// would take what is being written for a torn end.
package inspect
