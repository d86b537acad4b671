package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOldestAgeIsAlmostThatOfTheOldestJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Ages
		var now int64
		var longest int64
		var since []int64 // of the ready jobs, ascending
		for range rapid.IntRange(1, 5000).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				now += rapid.Int64Range(0, 10*second).Draw(t, "pass")
				a.Add(now)
				since = append(since, now)
			case 2:
				if len(since) > 0 {
					i := rapid.IntRange(0, len(since)-1).Draw(t, "leave")
					a.Remove(since[i])
					since = slices.Delete(since, i, i+1)
				}
			case 3:
				if len(since) > 0 {
					a.Remove(since[0])
					since = since[1:]
				}
			}
			var want int64
			if len(since) > 0 {
				want = now - since[0]
			}
			got := a.Oldest(now)
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

func TestOldestAgeOfJobsThatAreReadySince(t *testing.T) {
	for name, c := range map[string]struct {
		add, remove []int64
		now, want   int64
	}{
		"nothing":                      {nil, nil, 5 * second, 0},
		"one job":                      {[]int64{second}, nil, 5 * second, 4 * second},
		"the older has gone":           {[]int64{second, 3 * second}, []int64{second}, 5 * second, 2 * second},
		"the younger has gone":         {[]int64{second, 3 * second}, []int64{3 * second}, 5 * second, 4 * second},
		"two of one moment":            {[]int64{second, second}, []int64{second}, 5 * second, 4 * second},
		"all have gone":                {[]int64{second, 3 * second}, []int64{3 * second, second}, 5 * second, 0},
		"a clock that is behind":       {[]int64{5 * second}, nil, second, 0},
		"a gap in the middle is empty": {[]int64{1 * second, 2 * second, 3 * second}, []int64{2 * second, 1 * second}, 5 * second, 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			var a Ages
			for _, at := range c.add {
				a.Add(at)
			}
			for _, at := range c.remove {
				a.Remove(at)
			}
			if got := a.Oldest(c.now); got != c.want {
				t.Errorf("oldest is %d, want %d", got, c.want)
			}
		})
	}
}

// A job that stays for very long makes the spans longer, not more.
func TestAgesOfAJobThatStaysAreMerged(t *testing.T) {
	var a Ages
	var since []int64
	a.Add(0)
	now := int64(0)
	for range 10 * ageMarks {
		now += max(ageSpan, now/(ageMarks/2)) + 1
		a.Add(now)
		since = append(since, now)
		if len(a.marks) > ageMarks {
			t.Fatalf("%d marks", len(a.marks))
		}
		if now > 1<<60 {
			break
		}
	}
	if got := a.Oldest(now); got != now {
		t.Fatalf("the oldest is %d, want %d", got, now)
	}
	a.Remove(0)
	for _, at := range since {
		if got := a.Oldest(now); got < now-at || got > now-at+now/(ageMarks/4) {
			t.Fatalf("the oldest is %d, want %d", got, now-at)
		}
		a.Remove(at)
	}
	if len(a.marks) != 0 {
		t.Fatal("marks without jobs")
	}
}
