//go:build proof

package soak

import (
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

func init() { scales = append(scales, scale{"compaction", scaleCompaction}) }

// scaleCompaction measures how long clients wait while the log of a server alone is compacted. Three of four jobs are
// deleted, as fast as a client can: then the directory becomes larger than it may be, and compaction does not pause, whose
// pauses commits would have to wait for. It goes on by itself, with pauses, when the client has ended.
func scaleCompaction(t *testing.T) {
	const live = 2_000_000
	for _, sync := range []string{"-f0", "-f50"} {
		t.Run(sync, func(t *testing.T) {
			s := startTraced(t, "-b", t.TempDir(), sync)
			c := s.Dial(0)
			if err := c.Conn.SetDeadline(time.Now().Add(10 * servertest.Patience)); err != nil {
				t.Fatal(err)
			}
			pump(t, s.Addrs[0], 4*live, "INSERTED", putting(snapshotBody, "0"))
			phase := func(what string, do func()) {
				t.Helper()
				migrated := servertest.Stats(c)["binlog-records-migrated"]
				took, told := probed(t, s.Addrs[0].String(), s.Cmd.Process.Pid, []question{askUse, askPut}, do)
				row(t, "%s, of %v; %s jobs were moved before, %s after; p99, p99.9, longest, and longest without the machine's of each probe%s",
					what, took.Round(time.Millisecond), migrated, servertest.Stats(c)["binlog-records-migrated"], told)
			}
			settled := func() {
				for n := ""; n != servertest.Stats(c)["binlog-records-migrated"]; {
					n = servertest.Stats(c)["binlog-records-migrated"]
					time.Sleep(time.Second)
				}
			}
			phase("nothing happens", func() { time.Sleep(5 * time.Second) })
			for k := range 3 {
				phase("every fourth job is deleted", func() { pump(t, s.Addrs[0], live, "DELETED", deleting(k+1, 4)) })
				phase("the log is compacted", settled)
			}
			wantCounts(c, map[string]int{"current-jobs-ready": live, "current-jobs-reserved": 0})
		})
	}
}
