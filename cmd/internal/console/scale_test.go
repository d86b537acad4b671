package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

// crowded is a rig with 100,000 tubes and a million jobs, half of them in one tube.
func crowded(b testing.TB) *rig {
	const tubes, jobs = 100_000, 1_000_000
	r := newRig(b, nil)
	r.console.cfg.Local = local{r}
	body := []byte(`{"a":1}`)
	command := func(i int) client.Command {
		job := i / 2
		switch {
		case i%2 == 1:
			return client.Command{Line: fmt.Sprintf("put %d %d 60 %d", job%7, job%3*1000, len(body)), Body: body}
		case job >= jobs/2:
			return client.Command{Line: "use large"}
		}
		return client.Command{Line: fmt.Sprintf("use queue.%d", job%tubes)}
	}
	if err := r.conn.Pipeline(b.Context(), 2*jobs, command, func(int, client.Reply) error { return nil }); err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkPagesOfALargeServer tells how long pages take with 100,000 tubes and a million
// jobs: ms/op is the mean, and worst-ms the longest.
func BenchmarkPagesOfALargeServer(b *testing.B) {
	r := crowded(b)
	r.page("/tubes") // the first one waits for the table
	for _, path := range []string{
		"/", "/tubes", "/tubes?sort=name&q=99", "/tubes/large", "/tubes/large/jobs", "/tubes/large/jobs?state=delayed", "/tubes/large/jobs?q=nosuch",
		"/tubes/queue.77", "/tubes/queue.77/jobs", "/jobs/500000", "/failed", "/connections", "/server", "/api/v1/tubes?limit=1000",
	} {
		b.Run(path, func(b *testing.B) {
			worst := time.Duration(0)
			for b.Loop() {
				began := time.Now()
				if a := r.get(path); a.StatusCode != http.StatusOK {
					b.Fatal(a.Status)
				}
				worst = max(worst, time.Since(began))
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
}
