package convert

import (
	"fmt"
	"maps"
	"slices"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
)

// builder writes a new log.
type builder struct {
	sealed.Writer
}

func (b *builder) add(r *journal.Record) error {
	if !record.Valid(r) {
		return fmt.Errorf("job %d: a body of %d bytes: %w", r.ID, len(r.Body), record.ErrInvalid)
	}
	p, salt, err := b.Place(r.Size())
	if err != nil {
		return err
	}
	record.EncodeFull(p, salt, r)
	return nil
}

// addSettings adds settings of dead letters, in the order of their tubes' names.
func (b *builder) addSettings(settings map[string]journal.Setting) error {
	for _, tube := range slices.Sorted(maps.Keys(settings)) {
		s := settings[tube]
		p, salt, err := b.Place(record.SettingSize(&s))
		if err != nil {
			return err
		}
		record.EncodeSetting(p, salt, &s)
	}
	return nil
}
