package load

import (
	"runtime"
	"testing"
)

func TestMain(m *testing.M) {
	// A worker that waits occupies one of Go's processors; the servers in this process need some, too.
	runtime.GOMAXPROCS(16)
	m.Run()
}
