//go:build !planted

package planted

import "net"

// Has reports whether a fault is planted, which this program does not know.
func Has(Fault) bool { return false }

// Next returns the connection.
func Next(c net.Conn) net.Conn { return c }

// Keep does nothing.
func Keep([]byte) {}

// Kept returns nothing.
func Kept() [][]byte { return nil }
