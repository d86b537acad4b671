package faults_test

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// predetermine has the runtime do the same whenever a seed is played: it interrupts nobody, and draws the same lots. It is
// so until somebody makes a system call that may block, or another thread runs goroutines.
func predetermine(seed uint64) {
	lull()
	draw(seed)
}

// lull has the runtime's monitor fall asleep, which has other goroutines run when one seems to have run for 10 ms. It does
// so when no goroutine runs, and no timer is set; it looks each 10 ms or more often, and wakes with a system call that
// may block.
func lull() {
	const enough = 25 * time.Millisecond
	err := unix.TimerfdSettime(alarm.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(enough))}, nil)
	if err == nil {
		err = alarm.raw.Read(func(fd uintptr) bool {
			var n [8]byte
			_, _, e := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&n)), uintptr(len(n)))
			return e != unix.EAGAIN
		})
	}
	if err != nil {
		panic(err)
	}
}

// alarm is a timer of the system's, of which the runtime does not know.
var alarm = func() (a struct {
	fd  int
	raw syscall.RawConn
},
) {
	var err error
	if a.fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err == nil {
		a.raw, err = os.NewFile(uintptr(a.fd), "alarm").SyscallConn()
	}
	if err != nil {
		panic(err)
	}
	return a
}()

// thread is the beginning of what the runtime has of a thread, in words.
type thread [240]uint64

//go:linkname getm runtime.getm
func getm() *thread

//go:linkname cheaprand runtime.cheaprand
func cheaprand() uint32

// lots are what the runtime of Go 1.26 has to choose among ready cases, among timers of an instant, and where a map's walk
// begins.
type lots struct {
	buffer  [32]uint64
	seed    [4]uint64
	i, n, c uint32
	cheap   uint64
}

// draw sets the lots of this thread. They are found by what cheaprand does.
func draw(seed uint64) {
	const step = 0xa0761d6478bd642f // of wyrand
	m := getm()
	before := *m
	cheaprand()
	for i := range m {
		if at := i - int(unsafe.Offsetof(lots{}.cheap)/8); m[i]-before[i] == step && at >= 0 {
			l := (*lots)(unsafe.Pointer(&m[at]))
			l.seed, l.i, l.n, l.c = [4]uint64{seed}, 0, 0, 0
			l.cheap = seed
			return
		}
	}
	panic("the runtime is another one than that for which this was written")
}
