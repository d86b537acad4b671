package reactor

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
)

// pauser stops and restarts gnet's reading of connections of one loop. gnet has
// no means for that, but its poller can be told by whoever knows its descriptor:
// all connections of the loop are registered there by their own descriptors.
// The zero pauser does not work.
type pauser struct {
	works  bool
	poller int // gnet's epoll or kqueue descriptor
}

// newPauser makes a pauser for el, on which the connection with descriptor fd
// lies. It does not work if gnet is built otherwise than is known here.
func newPauser(el gnet.EventLoop, fd int) pauser {
	poller, ok := pollerOf(el)
	if !ok {
		return pauser{}
	}
	p := pauser{works: true, poller: poller}
	// This fails unless poller is a poller that has fd registered.
	if err := p.resume(fd); err != nil {
		return pauser{}
	}
	return p
}

// pollerOf finds the poller's descriptor in gnet's unexported types.
func pollerOf(el gnet.EventLoop) (fd int, ok bool) {
	v := reflect.ValueOf(el)
	for _, field := range []string{"poller", "fd"} {
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return 0, false
		}
		v = v.Elem().FieldByName(field)
	}
	if v.Kind() != reflect.Int {
		return 0, false
	}
	return int(v.Int()), true
}
