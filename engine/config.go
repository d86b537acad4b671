package engine

import (
	"hash/maphash"
	"time"

	"trellis/engine/account"
)

// Config is what an engine needs to know and to reach.
type Config struct {
	// MaxJobSize is the largest body in bytes that a put may announce. The
	// engine shows it in statistics; the decoder enforces it.
	MaxJobSize uint32
	// Shards is the number of shards, a power of two of at most 16. 0 means 16.
	// More shards let more loops work at once.
	Shards int
	// Limits bound what clients can make the engine hold.
	Limits Limits
	// Accounts are the shares that some clients have of the server. Nil means that there are
	// none.
	Accounts *account.Accounts
	// Journal makes changes durable. Nil keeps them in memory only.
	Journal Journal
	// Stock keeps the engine from doing by itself what beanstalkd does not do: settings of
	// tubes and limited keys stay on record, but have no effect.
	Stock bool
	// SegmentSize is the size in bytes of the journal's segments that stats
	// shows, also of a server without one. 0 means beanstalkd's default.
	SegmentSize int64
	// Start is the time of the wall clock at Time 0. [Engine.ClockSet] changes it.
	Start time.Time
	// Info is shown by the command stats.
	Info Info
	// Audit, if it is not nil, is told of commands once they are answered: pause-tube,
	// flush-tube, kick-tube, move-job, move-tube, delete-tube-jobs, set-dlq, set-tube, drain, undrain,
	// kick-connection, reload, and all that are denied. Several loops may call it at a time, with no
	// lock of the engine held, and it must not block.
	Audit func(Deed)
	// Reload begins to load files again, for the command of that name. It must not block, and
	// has answer called once, on any goroutine, with what came of it: entries of a YAML list.
	// Nil stands for no files.
	Reload func(answer func(entries []byte))
	// Crowded says that bodies take so much of Limits.Bodies that Engine.Evict is to be called. It must not block.
	// Several loops may call it at a time, with no lock of the engine held. Nil stands for nobody who does.
	Crowded func()

	seed maphash.Seed // by which tubes are placed, where a test says so
}

// Info describes the server's process and its machine.
type Info struct {
	PID      int
	Version  string
	ID       string // 16 hexadecimal digits that differ from one start to the next
	Hostname string
	OS       string // the system's version, as uname gives it
	Platform string // the machine, as uname gives it
	// Usage returns the processor time that the process has used. Any goroutine
	// may call it.
	Usage func() (user, system time.Duration)
	// Uptime returns how long the server has run. Any goroutine may call it. Nil
	// stands for the time since Time 0.
	Uptime func() time.Duration
}

// Waker lets the engine reach a loop. Any goroutine may call it. It must neither
// block nor call the engine.
type Waker interface {
	// Ring asks for calls of Loop.Next on the loop's goroutine, once it has polled
	// for input again.
	Wake()
	// Alarm asks for such calls at or soon after at, and not before. It replaces the
	// request before it. Calls of one Waker's Alarm do not overlap, but are made with
	// locks of the engine held.
	Alarm(at Time)
}
