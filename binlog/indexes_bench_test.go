package binlog

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/journal"
)

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// counter is an owner of jobs of which it only counts how many it was told.
type counter struct{ jobs, absent int }

func (c *counter) Full(r *Record, _ journal.Place) (was journal.Former, err error) {
	c.jobs++
	if r.Absent != nil {
		c.absent++
	}
	return was, nil
}
func (c *counter) Update(*Record) error     { return nil }
func (c *counter) Setting(*Setting) error   { return nil }
func (c *counter) Hold(*journal.Hold) error { return nil }

// A restart with and without indexes, and a put with and without: processor time for each job, without an engine.
func BenchmarkIndexes(b *testing.B) {
	const jobs = 1 << 20
	for _, size := range []int{100, 1024} {
		for _, indexes := range []bool{false, true} {
			b.Run(fmt.Sprintf("body=%d/indexes=%v", size, indexes), func(b *testing.B) {
				put, replay := time.Duration(0), time.Duration(0)
				for range b.N {
					opts := Options{Sync: SyncEvery(50 * time.Millisecond), SegmentSize: 64 << 20, Indexes: indexes}
					o, dir := newOwner(), b.TempDir()
					if err := o.open(dir, opts); err != nil {
						b.Fatal(err)
					}
					r := testRecord(1, size)
					began := processorTime(b)
					for id := range uint64(jobs) {
						r.ID = id + 1
						if _, err := o.append(r); err != nil {
							b.Fatal(err)
						}
						if id%64 == 63 {
							o.log.Flush()
						}
					}
					if err := o.log.Close(); err != nil {
						b.Fatal(err)
					}
					put += processorTime(b) - began
					if again, err := Open(dir, opts); err != nil {
						b.Fatal(err)
					} else if err := errors.Join(again.Replay(&counter{}), again.Start(Hooks{}), again.Close()); err != nil {
						b.Fatal(err)
					}
					began = processorTime(b)
					l, err := Open(dir, opts)
					if err != nil {
						b.Fatal(err)
					}
					c := &counter{}
					if err := l.Replay(c); err != nil {
						b.Fatal(err)
					}
					replay += processorTime(b) - began
					b.ReportMetric(float64(c.absent)/jobs, "absent/job")
					if err := l.Close(); err != nil || c.jobs != jobs {
						b.Fatal(err, c.jobs)
					}
				}
				b.ReportMetric(float64(put.Nanoseconds())/float64(b.N)/jobs, "put-cpu-ns/job")
				b.ReportMetric(float64(replay.Nanoseconds())/float64(b.N)/jobs, "replay-cpu-ns/job")
			})
		}
	}
}
