package gnetloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/pool/goroutine"
	"golang.org/x/sys/unix"
)

//go:linkname newStreamConn github.com/panjf2000/gnet/v2.newStreamConn
func newStreamConn(proto string, fd int, el unsafe.Pointer, sa unix.Sockaddr, local, remote net.Addr) unsafe.Pointer

//go:linkname register0 github.com/panjf2000/gnet/v2.(*eventloop).register0
func register0(el, c unsafe.Pointer) error

// Config is what loops need.
type Config struct {
	// Loops is how many there are to be.
	Loops int
	// ReadSize is the most bytes that one read brings.
	ReadSize int
	// Poller makes the one of a loop in a simulation. Nil is the system's.
	Poller func() Poller
	// Log gets what gnet has to say. gnet has one logger for the process: it is that of the last Start.
	Log *slog.Logger
	// Fatal is called when a loop cannot go on.
	Fatal func(why string, attrs ...any)
}

// gnet has goroutines at hand for connections that it is given by their net.Conn, and looks twice a second whether
// there are too many. It is given none.
func init() { goroutine.DefaultWorkerPool.Release() }

// unsupported is why the loops cannot be run in this build; nil if they can.
var unsupported error

// Start starts event loops. They do nothing before their Run.
func Start(cfg Config) (_ []*Loop, err error) {
	if unsupported != nil {
		return nil, unsupported
	}
	var loops []*Loop
	for range cfg.Loops {
		l, err := start(&cfg)
		if err != nil {
			return nil, errors.Join(err, Stop(loops))
		}
		loops = append(loops, l)
	}
	return loops, nil
}

// start starts a gnet client with one event loop, so that gnet's callbacks know their loop.
func start(cfg *Config) (*Loop, error) {
	if cfg.Poller != nil {
		return simulate(cfg), nil
	}
	l := &Loop{fatal: cfg.Fatal, conns: make(map[int32]gnet.Conn)}
	client, err := gnet.NewClient(&events{loop: l},
		gnet.WithNumEventLoop(1),
		gnet.WithReadBufferCap(cfg.ReadSize),
		gnet.WithLogger(logger{log: cfg.Log, fatal: cfg.Fatal}),
	)
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	l.client = client
	if err := l.find(client); err != nil {
		return nil, errors.Join(fmt.Errorf("gnetloop: gnet is not the version that is known here: %w", err), client.Stop())
	}
	if err := l.poller.open(); err != nil {
		return nil, errors.Join(err, client.Stop())
	}
	l.waker.open = true
	return l, nil
}

// Stop ends loops, and closes their connections. The Run of each returns before. It is not
// called on a loop.
func Stop(loops []*Loop) (err error) {
	for _, l := range loops {
		l.ending.Store(true)
		l.Wake()
		l.waker.close()
	}
	for _, l := range loops {
		err = errors.Join(err, l.client.Stop())
		if l.simulated == nil {
			l.poller.close()
		}
	}
	return err
}

// find takes the event loop, and its poller's descriptors, out of gnet's fields.
func (l *Loop) find(client *gnet.Client) error {
	el, err := field(reflect.ValueOf(client), "eng", "eventLoops", "eventLoops")
	if err != nil {
		return err
	}
	if el.Kind() != reflect.Slice || el.Len() != 1 {
		return fmt.Errorf("%v is no list of one event loop", el.Type())
	}
	el = el.Index(0)
	if err := l.poller.find(el); err != nil {
		return err
	}
	l.ptr = el.UnsafePointer()
	var ok bool
	if l.el, ok = reflect.NewAt(el.Type().Elem(), l.ptr).Interface().(gnet.EventLoop); !ok {
		return fmt.Errorf("%v is no event loop", el.Type())
	}
	return nil
}

// field follows the names of fields from v on, through pointers and interfaces.
func field(v reflect.Value, names ...string) (reflect.Value, error) {
	for _, name := range names {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		from := v
		if v.Kind() == reflect.Struct {
			v = v.FieldByName(name)
		}
		if !v.IsValid() || v == from {
			return v, fmt.Errorf("there is no field %s", name)
		}
	}
	return v, nil
}

// descriptor is field for a descriptor.
func descriptor(v reflect.Value, names ...string) (int, error) {
	v, err := field(v, names...)
	if err != nil {
		return -1, err
	}
	if v.Kind() != reflect.Int {
		return -1, fmt.Errorf("the field %s is no descriptor", names[len(names)-1])
	}
	return int(v.Int()), nil
}

// task is a gnet.Runnable with which the event loop ends: gnet never polls for itself then,
// and closes the connections.
type task func()

func (f task) Run(context.Context) error { f(); return gneterrors.ErrEngineShutdown }
