// Package sockets is where a simulation has sockets of its own. The reactor reads and writes them as it does those of
// the system, by descriptors from [First] on: whoever makes a system call on a descriptor that may be one of these asks
// [Of] before. For a descriptor of the system that costs a comparison. It is so on Linux; handshakes, and connections
// from inside the process, are of the system's sockets alone.
package sockets

import "golang.org/x/sys/unix"

// First is a simulation's first descriptor. The system has none so high.
const First = 1 << 30

// Simulation has sockets. Its methods do what system calls on sockets that do not block do, and fail as these do. Any
// goroutine may call them.
type Simulation interface {
	// Accept returns a connection to a listening socket.
	Accept(fd int) (int, error)
	// Read reads what has come. It returns 0 at the end.
	Read(fd int, p []byte) (int, error)
	// Unread reports whether Read would return something, or the end.
	Unread(fd int) bool
	// Write takes what there is room for.
	Write(fd int, p []byte) (int, error)
	// EndOutput tells the peer that no more comes.
	EndOutput(fd int) error
	// ResetOnClose has the peer told that it was not answered, when the socket is closed.
	ResetOnClose(fd int)
	// Duplicate returns another descriptor of the socket.
	Duplicate(fd int) (int, error)
	// Close closes a descriptor, and the socket with its last.
	Close(fd int)
}

var simulation Simulation

// Simulate has the process use a simulation's sockets beside the system's. It is called at most once, before there is
// any server.
func Simulate(s Simulation) { simulation = s }

// Of returns the simulation whose socket has a descriptor, nil for the system's.
func Of(fd int) Simulation {
	if fd < First {
		return nil
	}
	return simulation
}

// Close closes a descriptor.
func Close(fd int) {
	if s := Of(fd); s != nil {
		s.Close(fd)
	} else {
		_ = unix.Close(fd)
	}
}
