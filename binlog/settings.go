package binlog

import (
	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// setting is a tube's setting, and where its record is. There are few, so
// that the log keeps them itself, and needs nobody to tell it what compaction has to move.
type setting struct {
	Setting
	segment uint32
}

func (s *setting) size() int64 { return record.SettingSize(&s.Setting) }

// Set appends a tube's setting, which replaces the one before. The default policy ends it. It
// fails as Put does.
func (l *Log) Set(s *Setting) (Pos, error) {
	if !record.ValidSetting(s) {
		return 0, ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := record.SettingSize(s)
	if err := l.admit(n, l.room.floor(), false); err != nil {
		return 0, err
	}
	l.appendSetting(s, n)
	l.count.Written++
	return l.tail, nil
}

// migrateSetting appends a tube's setting again if its record is in the given segment.
func (l *Log) migrateSetting(tube string, segment uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.settings[tube]
	if s.segment != segment {
		return nil
	}
	if err := l.admit(s.size(), l.room.reserved()+l.room.margin/2, true); err != nil {
		return err
	}
	l.appendSetting(&s.Setting, s.size())
	l.count.Migrated++
	return nil
}

// appendSetting appends a setting of n bytes, for which there is room. With mu held.
func (l *Log) appendSetting(s *Setting, n int64) {
	b, seg := l.append(n)
	record.EncodeSetting(b, seg.salt, s)
	l.keep(seg, s)
}

// keep notes that the last setting of a tube is in a segment, instead of the one before.
// With mu held.
func (l *Log) keep(seg *segment, s *Setting) {
	var former journal.Former
	if was, ok := l.settings[s.Tube]; ok {
		former = journal.Former{Segment: was.segment, Size: was.size()}
	}
	if !s.IsDefault() {
		l.settings[s.Tube] = setting{*s, seg.Index}
		l.link(seg, record.SettingSize(s), former)
	} else if former.Segment != 0 {
		// The record of an end is needed only while there is an older record, and older
		// segments are removed first.
		delete(l.settings, s.Tube)
		l.unlink(former)
	}
}
