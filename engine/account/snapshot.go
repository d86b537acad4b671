package account

// Snapshot is what an account holds, and what it may hold.
type Snapshot struct {
	Name   string
	Tubes  []string // patterns
	Limits Limits
	Holds  Limits // but for Rate, which is 0

	// What was refused because of each limit, and how often a client had to wait because of
	// the rate, since the engine knows the account.
	RefusedJobs, RefusedMemory, RefusedTubes, RefusedKeys, RefusedConnections, Waits uint64
}

// An Amount is one of the amounts that an account may have a limit of.
type Amount struct {
	What         string
	Holds, Limit int64
	Refused      uint64
}

// Amounts are all of them, each at the same place of every snapshot.
func (a *Snapshot) Amounts() [5]Amount {
	return [...]Amount{
		{"jobs", a.Holds.Jobs, a.Limits.Jobs, a.RefusedJobs},
		{"memory", a.Holds.Memory, a.Limits.Memory, a.RefusedMemory},
		{"tubes", a.Holds.Tubes, a.Limits.Tubes, a.RefusedTubes},
		{"keys", a.Holds.Keys, a.Limits.Keys, a.RefusedKeys},
		{"connections", a.Holds.Connections, a.Limits.Connections, a.RefusedConnections},
	}
}
