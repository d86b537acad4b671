package main

import (
	"fmt"
	"strconv"
)

// seconds is a time for people, with its two greatest units.
func seconds(n uint64) string {
	const minute, hour, day, year = 60, 3600, 86400, 365 * 86400
	switch {
	case n < minute:
		return fmt.Sprintf("%ds", n)
	case n < hour:
		return fmt.Sprintf("%dm%02ds", n/minute, n%minute)
	case n < day:
		return fmt.Sprintf("%dh%02dm", n/hour, n%hour/minute)
	case n < year:
		return fmt.Sprintf("%dd%02dh", n/day, n%day/hour)
	}
	return fmt.Sprintf("%dy%dd", n/year, n%year/day)
}

// grouped is a number with its digits in threes.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
