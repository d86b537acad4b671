package journal

import (
	"bytes"
	"strconv"
	"strings"
)

// Setting is what is on record of a tube's setting. It belongs to the name of the tube, whether
// there is a tube of that name or not. Of the settings of one tube the last counts.
type Setting struct {
	Tube string
	Policy
	Origin Origin // the command that has made this record; not part of the setting
}

// Policy is what a setting says, by the keys of set-tube. A tube without a setting has
// DefaultPolicy.
type Policy struct {
	Attempts    uint32 // with which a job becomes a dead letter; 0: there are none
	Dead        string // tube of dead letters and of expired jobs; "": dead letters stay, expired jobs are deleted
	Disconnects bool   // the end of a client's connection is an attempt, too
	RetryMin    uint32 // seconds that a job waits after its first attempt; 0: it does not wait
	RetryFactor uint32 // how much longer it waits after each further one, 1 to 10
	RetryMax    uint32 // seconds, at least 1; less than RetryMin has no effect
	RetryJitter uint32 // percent that at most are added, up to 100
	Rate        uint32 // reservations that begin in Per seconds, at most 1,000,000; 0: no limit
	Per         uint32 // at most 86,400; 1 without a limit
	Burst       uint32 // that begin at once after a rest, at most 10,000; 0: as many as follow from the rate
	MaxReserved uint32 // jobs that are reserved at a time; 0: no limit
	Expire      uint32 // seconds after its put in which a job has to begin; 0: it does not expire
	Paused      bool   // nothing is handed out
	Linger      uint32 // seconds for which a job stays reserved whose worker has lost its connection, at most 86,400
}

// DefaultPolicy is the one that all tubes begin with.
var DefaultPolicy = Policy{RetryFactor: 2, RetryMax: 3600, RetryJitter: 10, Per: 1}

// DeadLetters is a setting that sends the dead letters of a tube to another one after so many
// attempts, and says nothing else; 0 and "" for no setting.
func DeadLetters(tube string, attempts uint32, dead string) Setting {
	s := Setting{Tube: tube, Policy: DefaultPolicy}
	s.Attempts, s.Dead = attempts, dead
	return s
}

// IsDefault reports whether there is no setting but the defaults.
func (p *Policy) IsDefault() bool { return *p == DefaultPolicy }

// Plain reports whether the policy says no more than a DeadLetters could.
func (p *Policy) Plain() bool {
	d := DefaultPolicy
	d.Attempts, d.Dead = p.Attempts, p.Dead
	return *p == d && (p.Attempts == 0) == (p.Dead == "")
}

// Valid reports whether all values are in their ranges.
func (p *Policy) Valid() bool {
	return len(p.Dead) <= MaxTube && p.RetryFactor >= 1 && p.RetryFactor <= 10 && p.RetryMax >= 1 &&
		p.RetryJitter <= 100 && p.Rate <= 1_000_000 && p.Per >= 1 && p.Per <= 86_400 &&
		(p.Rate > 0 || p.Per == 1) && p.Burst <= 10_000 && p.Linger <= 86_400
}

// BurstInForce is how many reservations begin at once after a rest, of a policy with a rate: those
// of a tenth of a second, if no burst is set.
func (p *Policy) BurstInForce() uint32 {
	if p.Burst > 0 {
		return p.Burst
	}
	return max(1, p.Rate/(10*p.Per))
}

// A PolicyKey is one of set-tube's.
type PolicyKey struct {
	Name   string
	Number func(*Policy) *uint32 // nil for the name of a tube, and for what is 0 or 1
	Truth  func(*Policy) *bool   // of what is 0 or 1
}

// PolicyKeys are all of them, in the order in which list-settings shows them.
var PolicyKeys = [...]PolicyKey{
	{Name: "attempts", Number: func(p *Policy) *uint32 { return &p.Attempts }},
	{Name: "dead"},
	{Name: "disconnects", Truth: func(p *Policy) *bool { return &p.Disconnects }},
	{Name: "retry-min", Number: func(p *Policy) *uint32 { return &p.RetryMin }},
	{Name: "retry-factor", Number: func(p *Policy) *uint32 { return &p.RetryFactor }},
	{Name: "retry-max", Number: func(p *Policy) *uint32 { return &p.RetryMax }},
	{Name: "retry-jitter", Number: func(p *Policy) *uint32 { return &p.RetryJitter }},
	{Name: "rate", Number: func(p *Policy) *uint32 { return &p.Rate }},
	{Name: "burst", Number: func(p *Policy) *uint32 { return &p.Burst }},
	{Name: "max-reserved", Number: func(p *Policy) *uint32 { return &p.MaxReserved }},
	{Name: "expire", Number: func(p *Policy) *uint32 { return &p.Expire }},
	{Name: "paused", Truth: func(p *Policy) *bool { return &p.Paused }},
	{Name: "linger", Number: func(p *Policy) *uint32 { return &p.Linger }},
}

// AppendValue appends the value that the key has in a policy, as set-tube takes it.
func (k *PolicyKey) AppendValue(b []byte, p *Policy) []byte {
	switch {
	case k.Truth != nil:
		return strconv.AppendUint(b, uint64(number(*k.Truth(p))), 10)
	case k.Number == nil:
		return append(b, p.Dead...)
	}
	b = strconv.AppendUint(b, uint64(*k.Number(p)), 10)
	if k.Name == "rate" && p.Rate > 0 {
		b = strconv.AppendUint(append(b, '/'), uint64(p.Per), 10)
	}
	return b
}

// Pairs are the arguments of a set-tube that makes the policy of the default one.
func (p *Policy) Pairs() string {
	var pairs []string
	for i := range PolicyKeys {
		k := &PolicyKeys[i]
		if v := k.AppendValue(nil, p); !bytes.Equal(v, k.AppendValue(nil, &DefaultPolicy)) {
			pairs = append(pairs, k.Name+"="+string(v))
		}
	}
	if pairs == nil {
		return "none"
	}
	return strings.Join(pairs, " ")
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
