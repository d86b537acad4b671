// Package bodies reads the bodies of jobs back from the segments that their full records are in. What
// is read when is decided by package elevator; here are the goroutines, the descriptors and the checks.
//
// # Use
//
//	r := bodies.New(options)
//	r.Load(fetches)        // never waits; Options.Fetched is told each once
//	r.Written(place)       // all before it can be read
//	r.Forget(segment)      // its file was removed
//	r.Close()
//
// Load may be called from any goroutine, Options.Fetched is called on those of the Reader.
//
// # Invariants
//
//   - What is told is the body of a full record with the right checksum, id and size, or an error.
//   - A goroutine lives while it has a read: at most 9, and those whose read hangs, at most 16. Each has
//     a buffer of 128 KiB; a longer body has one of its own.
//   - At most 256 descriptors are kept, and none of a file that was removed.
package bodies
