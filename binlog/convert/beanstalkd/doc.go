// Package beanstalkd reads and writes the files of beanstalkd's own log, the
// binlog.N in the directory of its option -b: version 7, which all releases since
// 1.5 write, and version 5, which they still read. It has no knowledge of a
// server; package convert imports and exports with it.
//
// The files are the C program's memory: integers of the machine's byte order in
// the layout of its compiler, without lengths or checksums. This package knows
// the layout of 64-bit little-endian machines. What can be checked is checked,
// because nothing else would tell a damaged file from a sound one: lengths,
// states, the names of tubes, the times, and the CR LF at a body's end.
package beanstalkd
