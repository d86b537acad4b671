package load

import (
	"flag"
	"runtime"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of the time is spent waiting for replies that do not come.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	// A worker that waits occupies one of Go's processors; the servers in this process need some, too.
	runtime.GOMAXPROCS(16)
	m.Run()
}
