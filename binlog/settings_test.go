package binlog

import (
	"maps"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/vfs/faultfs"
)

// Nobody but the log writes settings again when compaction removes the segments in which
// they are.
func TestSettingsOutliveTheSegmentsThatTheyWereWrittenTo(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(testDir)
	opts := Options{FS: fs, SegmentSize: MinSegmentSize}
	o := newOwner()
	if err := o.open(testDir, opts); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Setting{
		journal.DeadLetters("mail", 3, "mail.dead"),
		journal.DeadLetters("ended", 3, "mail.dead"),
		journal.DeadLetters("replaced", 3, "a"),
		{Tube: "policy", Policy: journal.Policy{Rate: 5, Per: 60, Dead: "d", RetryFactor: 2, RetryMax: 1}},
		journal.DeadLetters("ended", 0, ""),
		journal.DeadLetters("replaced", 1, "a-longer-name"),
	} {
		if _, err := o.set(s); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(3) {
		before := o.log.Stats().OldestSegment
		o.pass(t, round*500+1, round*500+500)
		eventually(t, "compaction", func() bool { return o.log.Stats().OldestSegment > before+10 })
		if err := o.log.Close(); err != nil {
			t.Fatal(err)
		}
		want := o.settings
		o = newOwner()
		fs = fs.Killed()
		opts.FS = fs
		if err := o.open(testDir, opts); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(o.settings, want) || len(want) != 3 {
			t.Fatalf("settings %v, want %v", o.settings, want)
		}
	}
	for tube := range o.settings {
		if _, err := o.set(journal.DeadLetters(tube, 0, "")); err != nil {
			t.Fatal(err)
		}
	}
	if n := o.log.Stats().LiveBytes; n != 0 || len(o.log.settings) != 0 {
		t.Errorf("%d live bytes of %d settings when all were ended", n, len(o.log.settings))
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestASettingThatTheFormatCannotHoldIsRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	for _, s := range []Setting{{}, {Tube: "t"}, journal.DeadLetters("", 1, "d"), journal.DeadLetters(string(make([]byte, 201)), 1, "d")} {
		if _, err := c.log.Set(&s); err != ErrInvalid {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestASalvageKeepsSettings(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{SegmentSize: MinSegmentSize})
	setting := journal.DeadLetters("mail", 3, "mail.dead")
	if _, err := c.set(setting); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		c.newJob(100)
	}
	if err := c.log.Close(); err != nil {
		t.Fatal(err)
	}
	m := readFiles(t, c.fs.Killed(), testDir)
	names := m.segments()
	m[names[1]][len(m[names[1]])/2] ^= 1
	o, _, err := openFiles(t, m, Options{SkipDamaged: true})
	if err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if got := o.settings["mail"]; got != setting || o.log.Recovery().Salvaged == nil {
		t.Errorf("the setting is %+v, want %+v", got, setting)
	}
}
