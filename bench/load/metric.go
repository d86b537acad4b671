package load

import "trellis/bench"

// A metric is something whose duration is measured: a command, or a part of a unit.
type metric uint8

const (
	metricPut metric = iota
	metricReserve
	metricDelete
	metricRelease
	metricBury
	metricKick
	metricTouch
	metricPeek
	metricStats
	metricUse
	metricWatch
	metricAuth
	metricConnect
	// metricHandover is the time from put to RESERVED.
	metricHandover
	// metricLate is how much later than its delay or its timeout said something happened.
	metricLate
	// metricUnit is a unit of the scenario from its first command (or the time when that was due) to its last reply.
	metricUnit
	numMetrics
)

var metricNames = [numMetrics]string{
	"put", "reserve", "delete", "release", "bury", "kick", "touch", "peek", "stats", "use", "watch", "auth", "connect",
	bench.HandoverMetric, bench.LateMetric, bench.UnitMetric,
}

// expected is the reply that a command gets when all is well.
var expected = [numMetrics]replyKind{
	metricPut: replyInserted, metricReserve: replyReserved, metricDelete: replyDeleted, metricRelease: replyReleased,
	metricBury: replyBuried, metricKick: replyKicked, metricTouch: replyTouched, metricPeek: replyFound,
	metricStats: replyOK, metricUse: replyUsing, metricWatch: replyWatching,
	metricAuth: replyAuthenticated,
}

// allowed is another reply that a command may get when its stage is mayFindNothing; where there is none,
// it is replyGarbage.
var allowed = [numMetrics]replyKind{metricReserve: replyTimedOut, metricPeek: replyNotFound}
