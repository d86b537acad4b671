// Package writable tells which sockets take output again. gnet's poller tells only of
// input, so the reactor has one of its own for the few clients that do not keep up.
//
// A descriptor is armed, and reported once when it can be written to or is broken; a
// report may come without cause. Nothing here knows connections: who armed a descriptor
// forgets it before it is closed, because its number may become somebody else's.
package writable

import "errors"

// ErrClosed is returned by Wait when Wake has been called.
var ErrClosed = errors.New("writable: the poller was told to end")
