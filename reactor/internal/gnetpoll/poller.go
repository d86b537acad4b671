package gnetpoll

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
)

// Poller is gnet's poller of one event loop. The zero Poller does not work.
type Poller struct {
	works bool
	fd    int // gnet's epoll or kqueue descriptor
	tasks int // the descriptor of the eventfd by which gnet has the loop run tasks
}

// Of returns the poller of el, on which the connection with descriptor fd lies. It does
// not work if gnet is built otherwise than is known here.
func Of(el gnet.EventLoop, fd int) Poller {
	poller, ok := descriptorOf(el, "fd")
	if !ok {
		return Poller{}
	}
	p := Poller{works: true, fd: poller, tasks: -1}
	// This fails unless poller is a poller that has fd registered.
	if err := p.Resume(fd); err != nil {
		return Poller{}
	}
	if tasks, ok := descriptorOf(el, "efd"); ok {
		p.tasks = tasks
	}
	return p
}

// Works tells whether gnet's poller was found. Otherwise no other method may be called,
// CanWait excepted.
func (p Poller) Works() bool { return p.works }

// descriptorOf finds a descriptor of the poller's in gnet's unexported types.
func descriptorOf(el gnet.EventLoop, name string) (fd int, ok bool) {
	v := reflect.ValueOf(el)
	for _, field := range []string{"poller", name} {
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
