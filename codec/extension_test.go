package codec

import (
	"bytes"
	"strings"
	"testing"
)

func TestDecoderKnowsExtensionsOnlyIfToldTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line  string
		with  Op
		stock Op
	}{
		{"capabilities", OpCapabilities, OpUnknown},
		{"capabilities ", OpBadFormat, OpUnknown},
		{"capabilitiesX", OpUnknown, OpUnknown},
		{"flush-tube t", OpFlushTube, OpUnknown},
		{"flush-tube", OpBadFormat, OpUnknown},
		{"flush-tube -t", OpBadFormat, OpUnknown},
		{"list-jobs t ready", OpListJobs, OpUnknown},
		{"list-jobs t Ready", OpBadFormat, OpUnknown},
		{"kick-tube t 1", OpKickTube, OpUnknown},
		{"kick-tube t 1 ", OpBadFormat, OpUnknown},
		{"peek-tube t buried", OpPeekTube, OpUnknown},
		{"move-job 1 t", OpMoveJob, OpUnknown},
		{"move-tube a ready b 1", OpMoveTube, OpUnknown},
		{"move-tube a reserved b 1", OpBadFormat, OpUnknown},
		{"delete-tube-jobs t reserved 1", OpDeleteTubeJobs, OpUnknown},
		{"reserve-batch 1", OpReserveBatch, OpBadFormat},
		{"reserve-batch 1 2147483647", OpReserveBatch, OpBadFormat},
		{"reserve-batch 1001", OpBadFormat, OpBadFormat},
		{"reserve-batchX", OpBadFormat, OpBadFormat},
		{"touch-all", OpTouchAll, OpUnknown},
		{"drain", OpDrain, OpUnknown},
		{"drain on", OpDrain, OpUnknown},
		{"drain off", OpUndrain, OpUnknown},
		{"drain status", OpDrainStatus, OpUnknown},
		{"undrain", OpUndrain, OpUnknown},
		{"stats-conn", OpStatsOwnConn, OpBadFormat},
		{"stats-conn 1", OpStatsConn, OpBadFormat},
		{"stats-conn x", OpBadFormat, OpBadFormat},
		{"stats-conn ", OpBadFormat, OpBadFormat},
		{"stats-connX", OpBadFormat, OpBadFormat},
		{"list-connections", OpListConns, OpUnknown},
		{"list-connections 1 2", OpListConns, OpUnknown},
		{"list-connections -1", OpBadFormat, OpUnknown},
		{"list-connectionsX", OpUnknown, OpUnknown},
		{"kick-connection 1", OpKickConn, OpUnknown},
		{"list-accounts", OpListAccounts, OpUnknown},
		{"list-accounts 1", OpBadFormat, OpUnknown},
		{"kick-connection", OpBadFormat, OpUnknown},
		{"kick-connection 1 2", OpBadFormat, OpUnknown},
		{"reload", OpReload, OpUnknown},
		{"reload 1", OpBadFormat, OpUnknown},
		{"stats-group g", OpStatsGroup, OpBadFormat},
		{"stats-group", OpBadFormat, OpBadFormat},
		{"stats-group ", OpBadFormat, OpBadFormat},
		{"stats-groupX", OpBadFormat, OpBadFormat},
		{"stats-group g h", OpBadFormat, OpBadFormat},
		{"stats-group -g", OpBadFormat, OpBadFormat},
		{"stats-group " + strings.Repeat("g", 64), OpStatsGroup, OpBadFormat},
		{"stats-group " + strings.Repeat("g", 65), OpBadFormat, OpBadFormat},
		{"undrain\x00", OpBadFormat, OpBadFormat},
		{"set-dlq t 0 d", OpSetDLQ, OpUnknown},
		{"set-dlq t 0", OpBadFormat, OpUnknown},
		{"set-dlq t 4294967296 d", OpBadFormat, OpUnknown},
		{"set-dlq t 1 d ", OpBadFormat, OpUnknown},
		{"set-dlqX", OpUnknown, OpUnknown},
		{"list-dlq", OpListDLQ, OpUnknown},
		{"list-dlq x", OpBadFormat, OpUnknown},
		{"set-tube t rate=1", OpSetTube, OpUnknown},
		{"set-tube t", OpBadFormat, OpUnknown},
		{"set-tubes t rate=1", OpUnknown, OpUnknown},
		{"list-settings", OpListSettings, OpUnknown},
		{"list-settings t", OpListSettings, OpUnknown},
		{"list-settings t u", OpBadFormat, OpUnknown},
		{"reserve-mode weighted", OpReserveMode, OpBadFormat},
		{"reserve-mode", OpBadFormat, OpBadFormat},
		{"reserve-modeX", OpBadFormat, OpBadFormat},
		{"watch t 5", OpWatch, OpBadFormat},
		{"watch t", OpWatch, OpWatch},
		{"stats-tube-x t", OpStatsTubeX, OpBadFormat},
		{"stats-tube-x", OpBadFormat, OpBadFormat},
		{"stats-tube-x ", OpBadFormat, OpBadFormat},
		{"stats-tube-xy", OpBadFormat, OpBadFormat},
		{"stats-tube-x -d", OpBadFormat, OpBadFormat},
		{"stats-tube-x a b", OpBadFormat, OpBadFormat},
		{"stats-tube x", OpStatsTube, OpStatsTube},
		{"stats-tubes", OpStatsTubes, OpBadFormat},
		{"stats-tubes ", OpBadFormat, OpBadFormat},
		{"stats-tubesX", OpBadFormat, OpBadFormat},
		{"stats-tubes -1", OpBadFormat, OpBadFormat},
		{"stats-tubes a", OpBadFormat, OpBadFormat},
		{"stats-tubes 1 d e", OpBadFormat, OpBadFormat},
		{"stats-tubes 4294967296", OpBadFormat, OpBadFormat},
	} {
		for _, mode := range []struct {
			extensions bool
			want       Op
		}{{true, c.with}, {false, c.stock}} {
			d := Decoder{Extensions: mode.extensions}
			var cmd Command
			n, ok := d.Next([]byte(c.line+"\r\n"), &cmd)
			if !ok || n != len(c.line)+2 || cmd.Op != mode.want {
				t.Errorf("%q with extensions %v is %v (%d, %v), want %v", c.line, mode.extensions, cmd.Op, n, ok, mode.want)
			}
		}
	}
}

func TestDecoderFillsTheFieldsOfExtensions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line string
		want Command
	}{
		{"list-jobs t delayed", Command{Op: OpListJobs, Tube: []byte("t"), State: Delayed, Bound: 100}},
		{"list-jobs t delayed 7", Command{Op: OpListJobs, Tube: []byte("t"), State: Delayed, Bound: 7}},
		{"list-jobs  t  buried  99999  18446744073709551615", Command{Op: OpListJobs, Tube: []byte("t"), State: Buried, Bound: MaxListJobs, ID: 1<<64 - 1}},
		{"move-tube a ready b 4294967295", Command{Op: OpMoveTube, Tube: []byte("a"), To: []byte("b"), State: Ready, Bound: 1<<32 - 1}},
		{"move-job 12 b", Command{Op: OpMoveJob, ID: 12, Tube: []byte("b")}},
		{"set-dlq  a  4294967295  b", Command{Op: OpSetDLQ, Tube: []byte("a"), Bound: 1<<32 - 1, To: []byte("b")}},
		{"list-connections", Command{Op: OpListConns, Bound: 1000}},
		{"list-connections 7", Command{Op: OpListConns, Bound: 7}},
		{"list-connections  0099999 18446744073709551615", Command{Op: OpListConns, Bound: MaxListConns, ID: 1<<64 - 1}},
		{"stats-conn 18446744073709551615", Command{Op: OpStatsConn, ID: 1<<64 - 1}},
		{"kick-connection  18446744073709551615", Command{Op: OpKickConn, ID: 1<<64 - 1}},
		{"stats-tube-x  a", Command{Op: OpStatsTubeX, Tube: []byte("a")}},
		{"stats-tubes", Command{Op: OpStatsTubes, Bound: 100}},
		{"stats-tubes 0", Command{Op: OpStatsTubes}},
		{"stats-tubes  1001  a", Command{Op: OpStatsTubes, Bound: MaxStatsTubes, Tube: []byte("a")}},
		{"reserve-batch 1000 9", Command{Op: OpReserveBatch, Bound: 1000, Timeout: 9}},
		{"reserve-batch 1000", Command{Op: OpReserveBatch, Bound: 1000}},
		{"reserve-mode fifo", Command{Op: OpReserveMode, Mode: FIFO}},
		{"reserve-mode default info", Command{Op: OpReserveMode, Mode: Default, Info: true}},
		{"reserve-mode  weighted", Command{Op: OpReserveMode, Mode: Weighted}},
		{"reserve-mode weighted-fair  info", Command{Op: OpReserveMode, Mode: WeightedFair, Info: true}},
		{"reserve-mode fifo abort", Command{Op: OpReserveMode, Mode: FIFO, Abort: true}},
		{"reserve-mode fifo info  abort", Command{Op: OpReserveMode, Mode: FIFO, Info: true, Abort: true}},
	} {
		d := Decoder{Extensions: true}
		// What an earlier command left must not show.
		cmd := Command{ID: 5, Bound: 6, Timeout: 7, Weight: 8, Info: true}
		if c.want.Op == OpStatsTubes {
			cmd.Tube = []byte("old")
		}
		if _, ok := d.Next([]byte(c.line+"\r\n"), &cmd); !ok || cmd.Op != c.want.Op || cmd.CountAs != c.want.Op ||
			!bytes.Equal(cmd.Tube, c.want.Tube) || !bytes.Equal(cmd.To, c.want.To) || cmd.ID != c.want.ID ||
			cmd.Bound != c.want.Bound || cmd.Timeout != c.want.Timeout ||
			c.want.State != 0 && cmd.State != c.want.State ||
			c.want.Mode != 0 && (cmd.Mode != c.want.Mode || cmd.Info != c.want.Info || cmd.Abort != c.want.Abort) {
			t.Errorf("%q is %+v, want %+v", c.line, cmd, c.want)
		}
	}
}

func TestAWatchMayHaveAWeight(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]uint32{
		"watch t": 1, "watch t 1": 1, "watch t  0009999": MaxWeight,
		"watch t 0": 0, "watch t 10000": 0, "watch t -1": 0, "watch t 4294967297": 0, "watch t ": 0, "watch t 1 ": 0, "watch t 1 1": 0, "watch  t": 0, "watch t\t1": 0,
	} {
		d := Decoder{Extensions: true}
		cmd := Command{Weight: 8}
		d.Next([]byte(line+"\r\n"), &cmd)
		if good := cmd.Op == OpWatch && cmd.Weight == want && string(cmd.Tube) == "t"; good != (want > 0) || !good && cmd.Op != OpBadFormat {
			t.Errorf("%q is %+v, want the weight %d", line, cmd, want)
		}
	}
}

// However the input is cut, extensions come out as they do from one piece, and they
// change nothing for lines that are not theirs.
func FuzzExtensions(f *testing.F) {
	for _, s := range []string{
		"list-jobs t ready 1 2", "move-tube a ready b 1", "reserve-batch 9 9", "drain off", "put 1 2 3 4", "stats", "move-job 1 t ",
		"set-dlq t 3 d", "list-dlq", "list-settings", "list-settings t",
		"set-tube t none", "set-tube t dead=d rate=1/60 burst= paused=1", "set-tube t attempts=1 attempts=2",
		"stats-conn", "stats-conn 18446744073709551615", "list-connections 10001 7", "list-connections  1", "stats-connX",
		"kick-connection 7", "list-accounts", "reload", "reserve-mode weighted info", "reserve-mode fifo inf", "watch t 9999", "watch t 0",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, line []byte, cut int) {
		if bytes.Contains(line, crlf) || len(line)+2 > MaxLine || bytes.HasPrefix(line, []byte("put ")) {
			return
		}
		line = append(line, crlf...)
		cut = min(max(cut, 0), len(line))
		whole, pieces, stock := Decoder{Extensions: true}, Decoder{Extensions: true}, Decoder{}
		var a, b, c Command
		whole.Next(line, &a)
		if _, ok := pieces.Next(line[:cut], &b); !ok {
			pieces.Next(line[cut:], &b)
		}
		stock.Next(line, &c)
		if a.Op == OpSetTube && (*a.Pairs != *b.Pairs || !bytes.Equal(a.To, b.To)) {
			t.Fatalf("%q in one piece: %+v; cut at %d: %+v", line, a, cut, b)
		}
		if a.Op == OpSetDLQ && (a.Bound != b.Bound || !bytes.Equal(a.To, b.To)) {
			t.Fatalf("%q in one piece: %+v; cut at %d: %+v", line, a, cut, b)
		}
		if a.Op != b.Op || a.ID != b.ID && (a.Op == OpListJobs || a.Op == OpStatsConn || a.Op == OpListConns || a.Op == OpKickConn) || !bytes.Equal(a.Tube, b.Tube) && a.Op >= NumStock && a.Op < NumCommands {
			t.Fatalf("%q in one piece: %+v; cut at %d: %+v", line, a, cut, b)
		}
		if a.Op == OpReserveMode && (a.Mode != b.Mode || a.Info != b.Info || a.Abort != b.Abort) || a.Op == OpWatch && a.Weight != b.Weight {
			t.Fatalf("%q in one piece: %+v; cut at %d: %+v", line, a, cut, b)
		}
		if a.Op == OpWatch && (a.Weight < 1 || a.Weight > MaxWeight) {
			t.Fatalf("%q has the weight %d", line, a.Weight)
		}
		if weighted := a.Op == OpWatch && c.Op == OpBadFormat; a.Op < NumStock && a.Op != c.Op && !weighted {
			t.Fatalf("%q is %v with extensions, and %v without", line, a.Op, c.Op)
		}
	})
}
