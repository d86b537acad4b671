package console

import (
	"context"
	"slices"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// agesListed is how many ready jobs a histogram of ages is made of at most, those that would
// be taken first: as many as one list may have.
const agesListed = client.MaxListJobs

// agesOf are how old the ready jobs of a tube were a moment ago.
type agesOf struct {
	buckets []Bucket  // nil: they were not listed yet
	listed  int       // jobs that are in buckets
	next    time.Time // when they are listed anew
	soonest time.Time // when they may be listed anew if something was changed here
}

// agesUpTo are the bounds of the buckets of a histogram of ages, but for the last one.
var agesUpTo = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

// ages sorts jobs into buckets by how long ago they were put.
func ages(jobs []client.Fields) []Bucket {
	buckets := make([]Bucket, 0, len(agesUpTo)+1)
	for _, d := range agesUpTo {
		buckets = append(buckets, Bucket{UpTo: d})
	}
	buckets = append(buckets, Bucket{UpTo: -1})
	for _, j := range jobs {
		age := operate.FromSeconds(j.Uint("age"))
		i := slices.IndexFunc(buckets, func(b Bucket) bool { return b.UpTo < 0 || age <= b.UpTo })
		buckets[i].Count++
	}
	return buckets
}

// agesOfTube lists the first ready jobs of a tube for their ages. A list costs the server a
// look at all jobs of the tube's shard, in turns, so it is used again for as long as a table
// of tubes would be, and one is made at a time: meanwhile others get the one before, if any.
func (c *Console) agesOfTube(ctx context.Context, conn *client.Conn, tube string) (agesOf, error) {
	began := time.Now()
	a, done := c.history.beginAges(tube, began)
	if done == nil {
		return a, nil
	}
	defer func() { done(a) }()
	jobs, err := conn.ListJobs(ctx, tube, client.Ready, agesListed, 0)
	if isGone(err) || isRefused(err) {
		jobs, err = nil, nil
	}
	if err != nil {
		return a, err
	}
	now := time.Now()
	pause := tableShare * now.Sub(began)
	a = agesOf{buckets: ages(jobs), listed: len(jobs), next: now.Add(max(tableAge, pause)), soonest: now.Add(pause)}
	return a, nil
}

// agesBars is the histogram as a page shows it. All is how many ready jobs the tube has.
func agesBars(a agesOf, all int64) *bars {
	note := "since they were put"
	if int64(a.listed) < all && a.listed == agesListed {
		note = "since they were put, of the next " + operate.Count(a.listed) + " of " + operate.Count(all)
	}
	empty, buckets := "No job is ready.", a.buckets
	if buckets == nil {
		empty, buckets = "They are being counted.", ages(nil)
	}
	return newBars("How old ready jobs are", note, empty, buckets)
}
