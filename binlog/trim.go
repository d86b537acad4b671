package binlog

import "errors"

// The trimmer makes the names of new segments durable, and gives back what full
// ones did not use. Both take time. It has a goroutine of its own because appends
// depend on the keeper's.

func (l *Log) runTrimmer() {
	for {
		select {
		case <-l.stop:
			return
		case <-l.wakeTrimmer:
		}
		l.nameSpares()
		l.trim()
	}
}

// nameSpares makes the names of new segments durable before a commit has to wait
// for that.
func (l *Log) nameSpares() {
	l.mu.Lock()
	var fresh []*segment
	for _, seg := range l.spares {
		if !seg.nameDurable.Load() {
			fresh = append(fresh, seg)
		}
	}
	l.mu.Unlock()
	if len(fresh) == 0 || l.opts.Sync == SyncNever {
		return
	}
	if err := l.entries.Sync(); err != nil {
		l.fail(err) // as for the sync of a file
		return
	}
	for _, seg := range fresh {
		seg.nameDurable.Store(true)
	}
}

// trim closes the segments that are sealed and durable, and gives back what they
// did not use.
func (l *Log) trim() {
	l.trimMu.Lock()
	defer l.trimMu.Unlock()
	for {
		l.mu.Lock()
		if len(l.sealed) == 0 || l.sealed[0].end() > l.Durable() {
			l.mu.Unlock()
			return
		}
		seg := l.sealed[0]
		l.sealed = l.sealed[1:]
		file := seg.file
		seg.file = nil
		l.mu.Unlock()

		err := file.Truncate(seg.used)
		if err := errors.Join(err, file.Close()); err != nil {
			l.log.Warn("a full segment cannot be trimmed", "file", seg.name, "error", err)
		}
		if l.index != nil {
			l.index.post(indexTask{seg: seg, durable: true})
		}
		if err == nil {
			l.mu.Lock()
			l.room.disk -= seg.size - seg.used
			seg.size = seg.used
			l.pace()
			l.mu.Unlock()
		}
	}
}
