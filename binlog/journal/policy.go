package journal

import (
	"fmt"
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
	Dead        string // tube of dead letters and of expired jobs; "" if it is the tube itself, and expired jobs are deleted
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

// IsDefault tells whether there is no setting but the defaults.
func (p *Policy) IsDefault() bool { return *p == DefaultPolicy }

// Plain tells whether the policy says no more than a DeadLetters could.
func (p *Policy) Plain() bool {
	d := DefaultPolicy
	d.Attempts, d.Dead = p.Attempts, p.Dead
	return *p == d && (p.Attempts == 0) == (p.Dead == "")
}

// Valid tells whether all values are in their ranges.
func (p *Policy) Valid() bool {
	return len(p.Dead) <= MaxTube && p.RetryFactor >= 1 && p.RetryFactor <= 10 && p.RetryMax >= 1 && p.RetryJitter <= 100 &&
		p.Rate <= 1_000_000 && p.Per >= 1 && p.Per <= 86_400 && (p.Rate > 0 || p.Per == 1) && p.Burst <= 10_000
}

// BurstInForce is how many reservations begin at once after a rest, of a policy with a rate: those
// of a tenth of a second, if no burst is set.
func (p *Policy) BurstInForce() uint32 {
	if p.Burst > 0 {
		return p.Burst
	}
	return max(1, p.Rate/(10*p.Per))
}

// Pairs are the arguments of a set-tube that makes the policy of the default one.
func (p *Policy) Pairs() string {
	var b strings.Builder
	add := func(key string, value, usual any) {
		if value != usual {
			fmt.Fprintf(&b, " %s=%v", key, value)
		}
	}
	d := &DefaultPolicy
	add("attempts", p.Attempts, d.Attempts)
	add("dead", p.Dead, d.Dead)
	add("disconnects", number(p.Disconnects), 0)
	add("retry-min", p.RetryMin, d.RetryMin)
	add("retry-factor", p.RetryFactor, d.RetryFactor)
	add("retry-max", p.RetryMax, d.RetryMax)
	add("retry-jitter", p.RetryJitter, d.RetryJitter)
	if p.Rate > 0 {
		add("rate", fmt.Sprintf("%d/%d", p.Rate, p.Per), "")
	}
	add("burst", p.Burst, d.Burst)
	add("max-reserved", p.MaxReserved, d.MaxReserved)
	add("expire", p.Expire, d.Expire)
	add("paused", number(p.Paused), 0)
	if b.Len() == 0 {
		return "none"
	}
	return b.String()[1:]
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
