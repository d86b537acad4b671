package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A schedule is the five fields of an entry. A bit set stands for each: bit n says that n is
// among the field's values.
type schedule struct {
	minutes, hours, days, months, weekdays uint64

	anyDay, anyWeekday bool // the field begins with *, so that the other one decides
	realTime           bool // the hour begins with * or has a step: see fires
}

// A field says what one of the five may hold.
type field struct {
	name      string
	low, high int
	names     []string // of its values from low on; nil if they have none
}

var fields = [...]field{
	{name: "minute", high: 59},
	{name: "hour", high: 23},
	{name: "day of the month", low: 1, high: 31},
	{name: "month", low: 1, high: 12, names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of the week", high: 7, names: strings.Fields("sun mon tue wed thu fri sat")}, // 7 is Sunday, too
}

// parseSchedule reads the five fields.
func parseSchedule(words []string) (s schedule, err error) {
	var sets [len(fields)]uint64
	for i := range fields {
		if sets[i], err = fields[i].parse(words[i]); err != nil {
			return s, fmt.Errorf("%s %q: %w", fields[i].name, words[i], err)
		}
	}
	s = schedule{minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4] | sets[4]>>7&1}
	s.realTime = words[1][0] == '*' || strings.Contains(words[1], "/")
	s.anyDay, s.anyWeekday = words[2][0] == '*', words[4][0] == '*'
	if !s.possible() {
		return s, errors.New("no month has such a day")
	}
	return s, nil
}

// parse reads a list of values, ranges and *, each with a step if it is to have one.
func (f *field) parse(word string) (set uint64, err error) {
	for item := range strings.SplitSeq(word, ",") {
		part, stepText, stepped := strings.Cut(item, "/")
		low, high := f.low, f.high
		if part != "*" {
			first, last, ranged := strings.Cut(part, "-")
			if low, err = f.value(first); err != nil {
				return 0, err
			}
			high = low
			if ranged {
				if high, err = f.value(last); err != nil {
					return 0, err
				}
			}
			if high < low {
				return 0, fmt.Errorf("%s ends before it begins", part)
			}
			if stepped && !ranged {
				return 0, errors.New("a step is behind * or a range")
			}
		}
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || stepText[0] == '+' {
				return 0, fmt.Errorf("%q is no step", stepText)
			}
		}
		for n := low; n <= high; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f *field) value(word string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(word, name) {
			return f.low + i, nil
		}
	}
	n, err := strconv.ParseUint(word, 10, 8)
	if err != nil || int(n) < f.low || int(n) > f.high {
		return 0, fmt.Errorf("%q is not from %d to %d", word, f.low, f.high)
	}
	return int(n), nil
}

// possible reports whether there is a day that fits. A day of the week comes in each month.
func (s *schedule) possible() bool {
	if !s.anyDay && !s.anyWeekday {
		return true
	}
	const leapYear = 2024
	for m := time.January; m <= time.December; m++ {
		for d := 1; d <= time.Date(leapYear, m+1, 0, 0, 0, 0, 0, time.UTC).Day(); d++ {
			if has(s.months, int(m)) && has(s.days, d) {
				return true
			}
		}
	}
	return false
}

func has(set uint64, n int) bool { return set>>n&1 != 0 }

// shows reports whether a clock on the wall that shows t shows a time of the schedule.
func (s *schedule) shows(t time.Time) bool {
	day, weekday := has(s.days, t.Day()), has(s.weekdays, int(t.Weekday()))
	fits := day && weekday
	if !s.anyDay && !s.anyWeekday {
		fits = day || weekday
	}
	return fits && has(s.months, int(t.Month())) && has(s.hours, t.Hour()) && has(s.minutes, t.Minute())
}

// fires reports whether the schedule fires at t, a whole minute in the entry's zone.
func (s *schedule) fires(t time.Time) bool {
	if s.realTime {
		return s.shows(t)
	}
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return s.shows(t)
	}
	_, before := start.Add(-1).Zone()
	_, after := t.Zone()
	moved := time.Duration(after-before) * time.Second
	since := t.Sub(start)
	if since < -moved { // the clock has gone back, and has shown this time before
		return false
	}
	if s.shows(t) {
		return true
	}
	if since >= time.Minute {
		return false
	}
	// The first moment after a gap, if there is one. A clock that counts up from here backwards
	// shows what was skipped.
	for skipped := time.Minute; skipped <= moved; skipped += time.Minute {
		if s.shows(wall(t).Add(-skipped)) {
			return true
		}
	}
	return false
}

// wall is a time in a zone without changes that shows what t shows.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
}
