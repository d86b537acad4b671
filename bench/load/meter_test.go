package load

import (
	"os"
	"testing"
	"time"

	"trellis/bench/internal/faulty"
	"trellis/bench/internal/host"
)

func TestAnotherProcessIsNotTakenForTheServer(t *testing.T) {
	f := faulty.Start(t, "tcp", faulty.Faults{}) // says that it uses no CPU time
	ctl, err := dialControl(&f.Addr, "", controlTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	used := func() int64 {
		u, err := host.CPU(os.Getpid())
		if err != nil {
			t.Skip(err)
		}
		return u.Total
	}
	m := &meter{ctl: ctl, pid: os.Getpid(), local: used()}
	for used() < m.local+int64(200*time.Millisecond) {
		continue // and use some
	}
	if m.confirm() || m.pid != 0 || m.memory() != 0 {
		t.Errorf("this process is taken for one that did nothing: %+v", m)
	}
	if !m.confirm() {
		t.Error("where nothing was taken from the kernel, there is nothing to confirm")
	}
}
