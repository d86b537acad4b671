// Package sealed writes whole segments: a new log of jobs that are known already, for
// those who convert logs and those who take snapshots. The log of a server that runs, which
// grows and has its segments allocated before, is package binlog.
//
// # Use
//
//	w := &sealed.Writer{FS: fs, Dir: dir, Limit: size, Seed: seed, Index: 1, LastID: id}
//	b, salt, err := w.Place(n)      // for each record
//	record.EncodeFull(b, salt, job)
//	err = w.Stop()                  // optional
//	err = w.Close()                 // then sync the directory
//
// A Writer is for one goroutine. After an error only Abandon is of use, and what is in the
// directory is to be removed.
//
// # What holds
//
//   - The segments follow each other in index and position, and each ends with an end
//     record. The first one is the oldest that is needed.
//   - When Close has returned nil, the data of all segments is durable; their names are
//     when the caller has synced the directory.
//   - A segment has at most Limit bytes, unless its only record is larger.
//
// A Writer needs one mebibyte, or for a moment the largest record, and 12 bytes a segment.
package sealed
