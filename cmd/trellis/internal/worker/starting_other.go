//go:build !linux

package worker

// killStarting does nothing: the system does not tell the environment of processes. What a command has started in the moment
// before its worker was killed is left behind.
func killStarting([]string, int) {}
