// Package host reads what the kernel tells of this machine and of processes on it, and sets what a load generator and
// the servers beside it need: the processors that threads may use, and how many files may be open.
//
// On systems other than Linux, CPU times, memory and processors are not known, and binding to processors is an error.
package host
