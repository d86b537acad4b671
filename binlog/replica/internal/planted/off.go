//go:build !planted

package replica

// planted tells whether a fault is planted. That is for tests, which have to find it: see
// the file for the build tag.
func planted(fault) bool { return false }
