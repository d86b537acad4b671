package load

// A role says what a connection is for.
type role uint8

const (
	roleUnits    role = iota // begins units of the scenario
	roleConsumer             // takes part in the units that others begin
	roleIdle                 // does nothing
	roleWaiting              // waits for a job that never comes
)

type connState uint8

const (
	stateClosed connState = iota
	stateConnecting
	stateSetup // its set-up commands are being answered
	stateReady
)

// A conn is one connection. It belongs to one worker.
type conn struct {
	fd           int32
	index        uint32 // in the worker's conns
	number       uint32 // among the run's connections of this role
	role         role
	state        connState
	writing      bool // the poller is asked about writability
	head         uint32
	tail         uint32 // commands [head, tail) are in flight
	nextSetup    uint32
	units        uint32   // units under way
	nextHeld     int      // commands sent to hold jobs
	want         int      // the least length of carry that can be a whole reply
	carry        []byte   // the beginning of a reply
	pending      []byte   // what the kernel has not taken yet, encrypted if there is TLS
	began        int64    // when connecting began; 0: nothing is being connected
	reservations []uint64 // ids of jobs that it has reserved, beyond those of its units
	secure       *secure  // nil for plain text
	drv          driverState
}

// driverState is what a driver may keep with a connection.
type driverState struct {
	sent, done uint32
	tag        uint32
	last       uint64
	start      int64
}

// A slot is a command in flight.
type slot struct {
	sentAt int64  // when it was sent, or due
	start  int64  // when its unit was begun, or due
	arg    uint64 // the job's number for a put, otherwise the number in the command, such as an id
	tag    uint32 // what the book shall keep of a put
	metric metric
	stage  uint8 // of the unit, as its driver counts; or mayFindNothing
}

// A driver is the logic of a scenario: it begins units, and continues them as replies come. One driver serves all
// workers; what it keeps for a connection is in the connection.
type driver interface {
	// setup sends the k-th command that makes c ready, and reports false when there is none.
	setup(w *worker, c *conn, k int) bool
	// join is called once for a consumer when the run begins.
	join(w *worker, c *conn, now int64)
	// begin sends the first command of a unit that is due at the time at.
	begin(w *worker, c *conn, at int64)
	// reply is called with every reply but those of set-up commands, after it was checked and booked. ok is false
	// when it was a violation. Every unit has to end in worker.end, or in worker.reconnect, which calls it.
	reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool)
}
