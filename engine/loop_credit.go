package engine

import "trellis/binlog/journal"

// charge counts a job with a body of size bytes and these keys, which may be nil, unless it
// would be too much. A limited key that no job has yet is counted when the job gets it. The
// bytes for it are taken now and left in the loop's credit, from which countBytes takes them.
// Only the loop's goroutine may call it.
func (l *Loop) charge(size uint32, keys *journal.Keys) bool {
	limit := l.engine.cfg.Limits.Memory
	return limit == 0 || l.chargeUpTo(limit, size, keys)
}

// chargeUpTo is charge where there is a limit.
func (l *Loop) chargeUpTo(limit int64, size uint32, keys *journal.Keys) bool {
	n := jobFootprint(size, keys)
	if keys != nil && keys.Limited != "" {
		more := limitedKeyFootprint(keys.Limited) + groupMemory
		if !l.take(n+more, limit) {
			return false
		}
		l.engine.refundBytes(&l.locks, more)
		return true
	}
	return l.take(n, limit)
}

// fits tells whether there is room for n bytes, and takes none. Only the loop's goroutine may
// call it.
func (l *Loop) fits(n int64) bool {
	limit, u := l.engine.cfg.Limits.Memory, &l.engine.usage
	if limit == 0 {
		return true
	}
	if u.memory.Load()-l.credit.bytes.Load() <= limit-n {
		return true
	}
	l.engine.callIn()
	if u.memory.Load() <= limit-n {
		return true
	}
	u.refusedMemory.Add(1)
	return false
}

// take counts n bytes if they fit below the limit.
func (l *Loop) take(n, limit int64) bool {
	e := l.engine
	if l.credit.spend(n) {
		return true
	}
	if e.usage.take(n+creditPortion, limit) {
		l.credit.bytes.Add(creditPortion)
		return true
	}
	if e.usage.take(n, limit) {
		return true
	}
	e.callIn()
	if e.usage.take(n, limit) {
		return true
	}
	e.usage.refusedMemory.Add(1)
	return false
}

// callIn takes the credits of all loops back.
func (e *Engine) callIn() {
	e.loopsMu.Lock()
	defer e.loopsMu.Unlock()
	for _, l := range e.loops {
		e.usage.memory.Add(-l.credit.bytes.Swap(0))
	}
}
