package account

import "sync/atomic"

// A Holding is the part of an account's tally that a tube, or the unique keys of a tube's
// name, take: it is counted here too, so that all of it can go over to another account in one
// step. Its methods are for who has the lock of the shard, but for Account, which any goroutine may call.
type Holding struct {
	of     atomic.Pointer[Tally] // nil for none
	memory int64                 // bytes; but not those of puts that are arriving
}

// Account returns whose it is, nil if it is nobody's.
func (h *Holding) Account() *Tally { return h.of.Load() }

// Memory is how many bytes it counts.
func (h *Holding) Memory() int64 { return h.memory }

// Begin gives it, while it has counted nothing, to an account, which may be nil for none.
func (h *Holding) Begin(to *Tally) { h.of.Store(to) }

// CountBytes counts bytes that are no job's, or that a job takes that is counted already.
func (h *Holding) CountBytes(bytes int64) {
	h.memory += bytes
	h.of.Load().Add(0, bytes)
}

// CountKeys counts keys.
func (h *Holding) CountKeys(n int64) {
	if a := h.of.Load(); a != nil {
		a.keys.Add(n)
	}
}

// CountJob counts a job that comes, or goes where n is -1, with its bytes.
func (h *Holding) CountJob(n, bytes int64) {
	h.memory += n * bytes
	h.of.Load().Add(n, n*bytes)
}

// Assign gives all of it to an account, which may be nil for none.
func (h *Holding) Assign(to *Tally, tubes, jobs, keys int64) {
	from := h.of.Load()
	if from == to {
		return
	}
	h.of.Store(to)
	from.addAll(-tubes, -jobs, -keys, -h.memory)
	to.addAll(tubes, jobs, keys, h.memory)
}

// CountAdmitted counts a job of so many bytes that was put, and for which by has counted it when it
// was admitted. The account may be another by now.
func (h *Holding) CountAdmitted(by *Tally, bytes int64) {
	h.memory += bytes
	if a := h.of.Load(); a != by {
		by.Dismiss(bytes)
		a.Add(1, bytes)
	}
}
