package engine

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"trellis/engine/internal/shard"
)

// Whoever gives a session something more has to say what becomes of it in another engine.
func TestAllOfASessionIsDetached(t *testing.T) {
	var fields []string
	for _, of := range []reflect.Type{reflect.TypeFor[Session](), reflect.TypeFor[shard.Client]()} {
		for _, f := range reflect.VisibleFields(of) {
			fields = append(fields, strings.ToLower(f.Name))
		}
	}
	known := []string{
		"loop", "client", "wait", "incoming", "id", "opened", "commands", "bytesin", "bytesout",
		"used", "watched", "first", "reserved", "claimed", "watchedshards", "flags",
	}
	if !slices.Equal(fields, known) {
		t.Errorf("a session has %v; Detach and Attach know of %v", fields, known)
	}
	if all := carried | isOpen | isClosing | restricted | onRecord | parts | isGhost | saidQuit; all != 1<<16-1 {
		t.Errorf("Detach and Attach know of the flags %b", all)
	}
}

// What access control costs, those pay who use it.
func TestAGrantMakesNoOtherSessionBigger(t *testing.T) {
	if n := unsafe.Sizeof(Session{}); n > 152 {
		t.Errorf("a session has %d bytes", n)
	}
	if n := unsafe.Sizeof(wait{}); n > 144 { // what the allocator gives anyway
		t.Errorf("what a waiting session has besides has %d bytes", n)
	}
}

// A server that has no engine, as a member of a cluster that does not lead, has loops that are stopped when it ends.
func TestALoopWithoutAnEngineIsStopped(t *testing.T) {
	new(Loop).Stop()
}
