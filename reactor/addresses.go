package reactor

import (
	"net"
	"reflect"
	"sync"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// addresses finds the unexported fields in which gnet keeps the addresses of a
// connection. With what they point to these are 300 bytes, which for a stream
// gnet only shows to whoever asks. The result is empty if gnet has changed.
type addresses struct {
	once   sync.Once
	fields []int // of the struct
}

// forget empties the fields. It is called on the connection's loop.
func (a *addresses) forget(gc gnet.Conn) {
	v := reflect.ValueOf(gc)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return
	}
	v = v.Elem()
	a.once.Do(func() { a.fields = addressFields(v.Type()) })
	for _, i := range a.fields {
		f := v.Field(i)
		reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().SetZero()
	}
}

func addressFields(conn reflect.Type) (fields []int) {
	for name, t := range map[string]reflect.Type{
		"localAddr":  reflect.TypeFor[net.Addr](),
		"remoteAddr": reflect.TypeFor[net.Addr](),
		"remote":     reflect.TypeFor[unix.Sockaddr](),
	} {
		if f, ok := conn.FieldByName(name); ok && f.Type == t && len(f.Index) == 1 {
			fields = append(fields, f.Index[0])
		}
	}
	return fields
}
