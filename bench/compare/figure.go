package compare

import "trellis/bench/internal/quantity"

// A figure is one value of a row.
type figure struct {
	name    string
	unit    quantity.Unit
	atLeast target
	aim     target
	// zero tells that the figure may be zero. Of other figures, zero means that the value is not known.
	zero bool
}

// A target is what a figure should reach.
type target struct {
	kind  targetKind
	limit float64
}

type targetKind uint8

const (
	noTarget   targetKind = iota
	ratioBelow            // not above this multiple of the first server's
	ratioAbove            // not below this multiple of the first server's
	valueBelow            // not above this, whatever the first server does
	valueAbove            // not below this
)

// A Verdict says what a figure should reach, and whether the last server does.
type Verdict struct {
	// Target is the limit in words, with its direction.
	Target string `json:"target"`
	// Met is nil when it cannot be told.
	Met *bool `json:"met,omitempty"`
}

// judge compares a value, or its ratio to the first server's, with the target. A value or a ratio of zero is not known.
// Without a target, the verdict is nil.
func (f *figure) judge(t target, value, times float64) *Verdict {
	var v Verdict
	known, met := times, false
	switch t.kind {
	case noTarget:
		return nil
	case ratioBelow:
		v.Target, met = "ratio ≤ "+quantity.Ratio(t.limit), times <= t.limit
	case ratioAbove:
		v.Target, met = "ratio ≥ "+quantity.Ratio(t.limit), times >= t.limit
	case valueBelow:
		known = value
		v.Target, met = "≤ "+f.unit.Format(t.limit), value <= t.limit
	case valueAbove:
		known = value
		v.Target, met = "≥ "+f.unit.Format(t.limit), value >= t.limit
	}
	if known != 0 {
		v.Met = &met
	}
	return &v
}

func (v *Verdict) String() string {
	switch {
	case v == nil:
		return ""
	case v.Met == nil:
		return v.Target
	case *v.Met:
		return v.Target + ": yes"
	}
	return v.Target + ": no"
}
