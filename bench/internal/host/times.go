package host

// InMemory is what FileSystem returns for a file system in memory, which says nothing about disks.
const InMemory = "tmpfs"

// A CPUTime is the CPU time that a process has used, in nanoseconds.
type CPUTime struct {
	Total     int64
	User, Sys int64 // in steps of 10 ms: good for their proportion only
}

// Plus returns the sum of two times.
func (t CPUTime) Plus(o CPUTime) CPUTime {
	return CPUTime{Total: t.Total + o.Total, User: t.User + o.User, Sys: t.Sys + o.Sys}
}

// A ProcessorTime is what a processor has done since the machine was started, in nanoseconds.
type ProcessorTime struct {
	Idle       int64
	Interrupts int64
	Stolen     int64 // by a hypervisor, while there was work
}
