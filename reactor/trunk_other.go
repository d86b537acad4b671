//go:build !linux

package reactor

// limitUnsent is for Linux.
func limitUnsent(int) {}
