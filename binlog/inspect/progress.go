package inspect

import "time"

// Progress tells how far the reading of a log has come.
type Progress struct {
	Phase   string // "check", "import", "salvage" or "replay"
	Done    int64  // bytes
	Total   int64  // bytes
	Records int64
}

// Meter tells a function of progress about once a second.
type Meter struct {
	Progress
	tell func(Progress)
	next time.Time
}

// NewMeter returns a Meter of a phase that reads total bytes. Tell may be nil.
func NewMeter(phase string, total int64, tell func(Progress)) *Meter {
	return &Meter{Progress: Progress{Phase: phase, Total: total}, tell: tell}
}

// Add counts one record of n bytes.
func (m *Meter) Add(n int64) {
	m.Done += n
	m.Records++
	if m.tell == nil || m.Records&0x3fff != 0 {
		return
	}
	if now := time.Now(); now.After(m.next) {
		if !m.next.IsZero() {
			m.tell(m.Progress)
		}
		m.next = now.Add(time.Second)
	}
}

// End tells of the last progress.
func (m *Meter) End() {
	if m.tell != nil {
		m.tell(m.Progress)
	}
}
