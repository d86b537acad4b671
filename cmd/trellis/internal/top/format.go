package top

import (
	"fmt"
	"strconv"
)

// count shows a number in at most 6 characters.
func count(n uint64) string {
	if n < 100_000 {
		return strconv.FormatUint(n, 10)
	}
	f, unit := float64(n)/1000, "k"
	for _, next := range []string{"M", "G", "T", "P", "E"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, next
	}
	if f < 9.995 {
		return fmt.Sprintf("%.2f%s", f, unit)
	}
	return fmt.Sprintf("%.0f%s", f, unit)
}

func rate(perSecond float64) string {
	switch {
	case perSecond < 0:
		return "-"
	case perSecond < 99.95:
		return fmt.Sprintf("%.1f", perSecond)
	}
	return count(uint64(perSecond + 0.5))
}

func age(seconds int64) string {
	if seconds < 0 {
		return "-"
	}
	return period(uint64(seconds))
}

func pause(seconds uint64) string {
	if seconds == 0 {
		return "-"
	}
	return period(seconds)
}

// period shows seconds with their two greatest units.
func period(s uint64) string {
	const minute, hour, day, year = 60, 60 * 60, 24 * 60 * 60, 365 * 24 * 60 * 60
	switch {
	case s < minute:
		return fmt.Sprintf("%ds", s)
	case s < hour:
		return fmt.Sprintf("%dm%02ds", s/minute, s%minute)
	case s < day:
		return fmt.Sprintf("%dh%02dm", s/hour, s%hour/minute)
	case s < year:
		return fmt.Sprintf("%dd%02dh", s/day, s%day/hour)
	}
	return fmt.Sprintf("%dy", s/year)
}
