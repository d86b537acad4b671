package adopt

import (
	"fmt"
	"net"
	"reflect"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

//go:linkname newStreamConn github.com/panjf2000/gnet/v2.newStreamConn
func newStreamConn(proto string, fd int, el unsafe.Pointer, sa unix.Sockaddr, local, remote net.Addr) unsafe.Pointer

//go:linkname register0 github.com/panjf2000/gnet/v2.(*eventloop).register0
func register0(el, c unsafe.Pointer) error

// gnetPath is the package of gnet's types.
const gnetPath = "github.com/panjf2000/gnet/v2"

// Loop adopts connections for one event loop. The zero Loop does not work.
type Loop struct {
	el   unsafe.Pointer // *eventloop of gnet
	conn reflect.Type   // conn of gnet
}

// Of returns the Loop of the event loop on which gc lies. It fails if gnet's types
// are not those that are known here.
func Of(gc gnet.Conn) (Loop, error) {
	el, err := pointer(gc.EventLoop(), "eventloop")
	if err != nil {
		return Loop{}, err
	}
	c, err := pointer(gc, "conn")
	if err != nil {
		return Loop{}, err
	}
	return Loop{el: el.UnsafePointer(), conn: c.Type().Elem()}, nil
}

// pointer checks that v is a pointer to the named type of gnet.
func pointer(v any, name string) (reflect.Value, error) {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.Type().Elem().Name() != name || p.Type().Elem().PkgPath() != gnetPath {
		return p, fmt.Errorf("adopt: gnet has a %T where a pointer to %s.%s is expected", v, gnetPath, name)
	}
	return p, nil
}

// Adopt registers the connected stream socket fd, which must be non-blocking, with
// the event loop. OnOpen has been called with context when Adopt returns nil. It
// must be called on the loop's goroutine. fd belongs to gnet from then on: when
// Adopt fails it is closed.
func (l Loop) Adopt(fd int, context any) error {
	c := newStreamConn("tcp", fd, l.el, nil, nil, nil)
	reflect.NewAt(l.conn, c).Interface().(gnet.Conn).SetContext(context)
	if err := register0(l.el, c); err != nil {
		return fmt.Errorf("adopt: registering a descriptor with an event loop: %w", err)
	}
	return nil
}
