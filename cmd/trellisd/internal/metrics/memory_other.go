//go:build !linux

package metrics

// memoryLimit is how much memory the process can use, 0 for unknown.
func memoryLimit() int64 { return 0 }
