// Package tlsmem lets a tls.Conn read and write memory.
//
// crypto/tls wants a net.Conn, and keeps the first error of its handshake. So a handshake runs in a
// goroutine of its own over a socket, and afterwards an event loop feeds the same tls.Conn with what it
// has read, and sends what was sealed: see [Memory]. [Wire] is the net.Conn that changes from the one to
// the other.
package tlsmem
