package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOldestReadyAgeIsAlmostThatOfTheOldestReadyJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a ages
		var now Time
		var longest Time
		var since []Time // of the ready jobs, ascending
		for range rapid.IntRange(1, 5000).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				now += Time(rapid.Int64Range(0, int64(10*second)).Draw(t, "pass"))
				a.add(now)
				since = append(since, now)
			case 2:
				if len(since) > 0 {
					i := rapid.IntRange(0, len(since)-1).Draw(t, "leave")
					a.remove(since[i])
					since = slices.Delete(since, i, i+1)
				}
			case 3:
				if len(since) > 0 {
					a.remove(since[0])
					since = since[1:]
				}
			}
			var want Time
			if len(since) > 0 {
				want = now - since[0]
			}
			got := a.oldest(now)
			longest = max(longest, want)
			if len(since) == 0 {
				longest = 0
			}
			if got < want || got > want+max(ageSpan, longest/(ageMarks/4)) {
				t.Fatalf("oldest is %d, want %d", got, want)
			}
			if len(since) == 0 && len(a.marks) != 0 {
				t.Fatal("marks without jobs")
			}
		}
	})
}
