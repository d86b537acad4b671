package console

import (
	"time"

	"trellis/cmd/internal/operate"
)

// Local is the server that a console is part of: it tells what the protocol does not, and
// what would cost much to ask for. Its methods are called by any goroutine. What they tell of
// jobs is committed: a member of a cluster that cannot prove that it leads tells nothing of them.
type Local interface {
	// Counts are those of the server, false while it serves nobody.
	Counts() (operate.Counts, bool)
	// Tubes calls visit for every tube, and must not hold up clients meanwhile. It fails
	// while the server serves nobody, and then what visit was told does not count.
	Tubes(visit func(*operate.Tube)) error
	// Waits is how long jobs were ready before they were reserved, in buckets; nil if
	// that is not known.
	Waits() []Bucket
	// Blocks is the group that a job keeps others waiting for because it is buried, and how many they
	// are; none if it does not, or if that is not known.
	Blocks(job uint64) (group string, waiting int)
	// Problems are what an operator should look at.
	Problems() []Problem
	// Sections are what else there is to know: settings, memory, the log, the cluster.
	Sections() []Section
}

// Bucket is a bar of a histogram: how many durations were up to UpTo and over that of the
// bucket before. UpTo of the last one may be negative: without bound.
type Bucket struct {
	UpTo  time.Duration
	Count uint64
}

// Problem is something that an operator should look at.
type Problem struct {
	Severe bool
	Text   string
	Path   string // of the page where to look, without the base; may be empty
}

// Section is a part of the page about the server.
type Section struct {
	Title string
	Lines []SectionLine
}

// SectionLine is a line of a section.
type SectionLine struct{ Key, Value string }
