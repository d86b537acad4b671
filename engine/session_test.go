package engine

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"
)

// Whoever gives a session something more has to say what becomes of it in another engine.
func TestAllOfASessionIsDetached(t *testing.T) {
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Session]()) {
		fields = append(fields, f.Name)
	}
	known := []string{
		"loop", "client", "used", "watched", "first", "reserved", "claimed", "watchedShards", "flags", "wait", "incoming",
		"id", "opened", "commands", "bytesIn", "bytesOut",
	}
	if !slices.Equal(fields, known) {
		t.Errorf("a session has %v; Detach and Attach know of %v", fields, known)
	}
	if all := carried | isOpen | isClosing | restricted | onRecord | parts | isGhost; all != aborts<<1-1 {
		t.Errorf("Detach and Attach know of the flags %b", all)
	}
}

// What access control costs, those pay who use it.
func TestAGrantMakesNoOtherSessionBigger(t *testing.T) {
	if n := unsafe.Sizeof(Session{}); n > 112+unsafe.Sizeof(subscription{}) {
		t.Errorf("a session has %d bytes", n)
	}
	if n := unsafe.Sizeof(wait{}); n > 144 { // what the allocator gives anyway
		t.Errorf("what a waiting session has besides has %d bytes", n)
	}
}
