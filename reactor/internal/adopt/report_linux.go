package adopt

import (
	"reflect"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
)

//go:linkname processIO github.com/panjf2000/gnet/v2.(*conn).processIO
func processIO(c unsafe.Pointer, fd int, events uint32, flags uint16) error

// Report has gnet deal with what its poller has reported of a connection on the loop, as
// if gnet had polled itself: it reads, calls OnTraffic, and closes the connection at the
// end of its input. Events are epoll's. It must be called on the loop's goroutine.
func (l Loop) Report(gc gnet.Conn, events uint32) error {
	return processIO(reflect.ValueOf(gc).UnsafePointer(), gc.Fd(), events, 0)
}
