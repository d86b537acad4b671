package snapshot

import (
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// kept takes what a snapshot tells.
type kept struct {
	records  []journal.Record
	settings []journal.Setting
}

func (k *kept) Full(r *journal.Record, _ uint32) (journal.Former, error) {
	k.records = append(k.records, *r)
	return journal.Former{}, nil
}

func (k *kept) Update(r *journal.Record) error {
	k.records = append(k.records, *r)
	return nil
}

func (k *kept) Delete(uint64) uint32 { return 1 }

func (k *kept) Setting(s *journal.Setting) error {
	k.settings = append(k.settings, *s)
	return nil
}

func TestASnapshotKeepsSettingsAttemptsAndKeys(t *testing.T) {
	fs := faultfs.New(root)
	w, err := Create(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	job := journal.Record{
		ID: 2, State: journal.Ready, Tube: "t", Releases: 2, Kicks: 1, Attempts: 1,
		Keys: journal.Keys{Unique: "u", Seconds: 9, Limited: "c", Limit: 2},
	}
	setting := journal.Setting{Tube: "t", MaxAttempts: 1, DeadTube: "d"}
	for _, err := range []error{w.Full(&job), w.Update(&job), w.Setting(&setting)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	of := metaOf(9)
	of.Highest = 2
	_, path, err := w.Finish(of)
	if err != nil {
		t.Fatal(err)
	}
	var k kept
	if err := Load(fs, path, &k); err != nil {
		t.Fatal(err)
	}
	if len(k.settings) != 1 || k.settings[0] != setting {
		t.Errorf("settings %+v", k.settings)
	}
	if len(k.records) != 2 || k.records[0].Attempts != 1 || k.records[0].Keys != job.Keys || k.records[1].Attempts != 1 {
		t.Errorf("records %+v", k.records)
	}
}
