package faults_test

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/servertest"
)

// most is how much memory a process takes before its garbage is collected, plenty what no history takes. What is plenty
// compared to the last collection's limit, the runtime does not give back to the system bit by bit, for which it would
// set timers; and the next history need not fault it in again.
const (
	most   = 1<<30 + weight
	plenty = 1 << 40
)

// ballast is memory that nobody touches, so that the system need not have it. With so much of it, what the heap takes
// differs by some hundredths from one collection to the next: of that the runtime gives nothing back, for which it would
// set a timer of a second, and a history would have to wait until that has passed and the monitor sleeps.
var ballast = sync.OnceValue(func() []byte { return make([]byte, weight) })

const weight = 2 << 30

// undisturbed has goroutines run one at a time, and the collector leave them alone, until the test ends: it would have
// them run in another order. It collects between histories.
func undisturbed(t *testing.T) {
	procs := runtime.GOMAXPROCS(1)
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(most)
	if !servertest.RaceEnabled { // the race detector touches all memory
		ballast()
		percent = 5 // of the ballast, above all
	}
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// predetermine has the runtime do the same whenever a seed is played: it interrupts nobody, and draws the same lots. It
// is so until somebody makes a system call that may block, or another thread runs goroutines.
func predetermine(seed uint64) {
	debug.SetMemoryLimit(plenty)
	lull()
	draw(seed)
}

// lull has the runtime's monitor fall asleep, which has other goroutines run when one seems to have run for 10 ms. It
// does so when no goroutine runs, and no timer is set; it looks each 10 ms or more often, and wakes with a system call
// that may block.
func lull() {
	for range lulls {
		err := unix.TimerfdSettime(alarm.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(12_000_000)}, nil)
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
		if monitorSleeps() {
			return
		}
	}
	lulls = 10
}

// lulls is how often lull looks whether the monitor sleeps. Where it has done so in vain, other tests have timers.
var lulls = 150

// monitor is a file that tells in which system call the runtime's monitor is. That has the first thread that the
// runtime starts.
var monitor = func() int {
	threads, err := os.ReadDir("/proc/self/task")
	if err == nil {
		slices.SortFunc(threads, func(a, b os.DirEntry) int { // by their numbers
			return cmp.Or(len(a.Name())-len(b.Name()), strings.Compare(a.Name(), b.Name()))
		})
		var fd int
		name := filepath.Join("/proc/self/task", threads[1].Name(), "syscall")
		if fd, err = unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			return fd
		}
	}
	panic(err)
}()

// shortest is for how long the monitor sleeps at least where no history takes longer. It sleeps for a minute, or until
// the next timer outside histories, as that of the goroutine that gives memory back to the system.
const shortest = 15 * time.Second

// monitorSleeps reports whether the monitor waits to be woken, and not for some time only.
func monitorSleeps() bool {
	var text [120]byte
	to, size := uintptr(unsafe.Pointer(&text)), uintptr(len(text))
	n, _, _ := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(monitor), to, size, 0, 0, 0)
	call := strings.Fields(string(text[:max(0, int(n))])) // its number, and its arguments, of which one is a time
	if len(call) < 5 || call[0] != strconv.Itoa(unix.SYS_FUTEX) {
		return false
	}
	var limit unix.Timespec
	at, err := strconv.ParseUint(call[4], 0, 64)
	_, _, failed := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(unix.Getpid()),
		uintptr(unsafe.Pointer(&unix.Iovec{Base: (*byte)(unsafe.Pointer(&limit)), Len: 16})), 1,
		uintptr(unsafe.Pointer(&unix.RemoteIovec{Base: uintptr(at), Len: 16})), 1, 0)
	return err == nil && (at == 0 || failed == 0 && time.Duration(limit.Nano()) >= shortest)
}

// rouse wakes the monitor, without which no timer interrupts a goroutine, and has the collector do its work.
func rouse() {
	_ = unix.Close(-1) // a system call that may block, of which the runtime is told
	debug.SetMemoryLimit(most)
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

// lots are what the runtime of Go 1.26 has to choose among ready cases, among timers of an instant, and where a map's
// walk begins.
type lots struct {
	buffer  [32]uint64
	seed    [4]uint64
	i, n, c uint32
	cheap   uint64
}

// Samples of what takes memory would be drawn, too, at moments that no seed decides.
func init() { runtime.MemProfileRate = 0 }

// cheap is where a thread has what its cheap lots begin with; 0 before draw has found it.
var cheap int

// redraw sets the cheap lots of this thread: how many were drawn depends on what the process did before, as the runtime
// draws no lot for what it remembers of stacks and of types.
func redraw(x uint64) {
	if cheap > 0 {
		getm()[cheap] = x * 0x9e3779b97f4a7c15
	}
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
			l.cheap, cheap = seed, i
			return
		}
	}
	panic("the runtime is another one than that for which this was written")
}
