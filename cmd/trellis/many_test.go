package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/bench"
	"trellis/cmd/internal/client"
)

// connect connects to a server as the tool names it.
func connect(t *testing.T, addr string) *client.Conn {
	t.Helper()
	a, err := bench.ParseAddress(addr)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := a.Dial(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(nc, addr)
	t.Cleanup(func() { c.Close() })
	return c
}

// putMany puts jobs with large bodies into a tube, one after the other.
func putMany(ctx context.Context, t *testing.T, c *client.Conn, tube string, n int, delay uint32) {
	t.Helper()
	if err := c.Use(ctx, tube); err != nil {
		t.Fatal(err)
	}
	err := c.Pipeline(ctx, n, func(i int) client.Command {
		j := client.NewJob{Pri: uint32(i), Delay: delay, TTR: 7200, Body: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 5_000))}
		return j.Command()
	}, func(_ int, r client.Reply) error {
		_, err := c.Inserted(r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestManyJobs does everything to more jobs than a page, a window or the kernels' buffers hold.
func TestManyJobs(t *testing.T) {
	const n = 10_500
	for server, start := range map[string]func(*testing.T) string{
		"trellisd":              func(t *testing.T) string { return startTrellisd(t) },
		"trellisd without them": func(t *testing.T) string { return startTrellisd(t, "--no-extensions") },
		"beanstalkd":            startBeanstalkd,
	} {
		t.Run(server, func(t *testing.T) {
			if !proof && server != "trellisd" {
				t.Skip("make proof does it")
			}
			t.Parallel()
			addr := "unix:" + start(t)
			c := connect(t, addr)
			putMany(t.Context(), t, c, "mail", n, 0)
			putMany(t.Context(), t, c, "mail", n, 3600)
			if err := c.Use(t.Context(), "default"); err != nil { // the tube is to go at the end
				t.Fatal(err)
			}
			var ids []string
			for id := 1; id <= n; id++ {
				ids = append(ids, fmt.Sprint(id))
			}
			want := func(line, text string) {
				t.Helper()
				if out, errs, status := trellis(t, append(strings.Fields(line), "-a", addr)...); status != 0 || !strings.Contains(out, text) {
					t.Errorf("trellis %.60s: status %d\n%.200s\n%.200s", line, status, out, errs)
				}
			}
			want("bury --tube mail --state ready --count 1200", "1,200 ready jobs of tube mail buried")
			want("kick --tube mail --state delayed --count 1100", "1,100 delayed jobs of tube mail kicked")
			want("kick --tube mail --count all", "1,200 buried jobs of tube mail kicked")
			want("bury --tube mail --state delayed --count all", "9,400 delayed jobs of tube mail buried")
			want("delete "+strings.Join(ids, " "), "10,500 jobs deleted")
			want("delete --tube mail --state buried --count 1300", "1,300 buried jobs of tube mail deleted")
			if has, err := c.Has(t.Context(), "list-jobs"); err != nil {
				t.Fatal(err)
			} else if has {
				want("jobs mail --limit 0 --grep x -o ndjson", `"body":"10499 xxx`)
				want("copy --tube mail --state ready --count all --to copies", "1,100 ready jobs of tube mail copied")
				want("move --tube mail --state ready --count all --to copies", "1,100 ready jobs of tube mail moved")
				want("clear copies --yes", "2,200 jobs of tube copies deleted")
			}
			want("clear mail --yes", " jobs of tube mail deleted")
			if tubes, err := c.Tubes(t.Context()); err != nil || len(tubes) != 1 {
				t.Errorf("%v, %v", tubes, err)
			}
		})
	}
}
