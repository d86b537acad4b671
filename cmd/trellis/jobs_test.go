package main

import (
	"net"
	"strings"
	"testing"

	"trellis/cmd/internal/client"
)

func TestJobsTellsOfOrphans(t *testing.T) {
	t.Parallel()
	addr := startTrellisd(t)
	c := connect(t, "unix:"+addr)
	if err := c.SetTube(t.Context(), "default", "linger=600"); err != nil {
		t.Fatal(err)
	}
	putMany(t.Context(), t, c, "default", 3, 0)
	const below = "of the tube's reserved jobs, 1 orphan: the workers have lost their connections\n"
	list := func(args ...string) string {
		t.Helper()
		out, errs, status := trellis(t, append([]string{"jobs", "default", "-a", "unix:" + addr}, args...)...)
		if status != 0 {
			t.Errorf("status %d: %s", status, errs)
		}
		return out
	}
	if out := list(); strings.Contains(out, "orphan") {
		t.Errorf("there is none:\n%s", out)
	}
	nc, err := net.Dial("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	worker := client.New(nc, addr)
	for range 2 {
		if _, err := worker.Reserve(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := worker.Delete(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	eventually(t, "a job is an orphan", func() bool {
		f, err := c.StatsTubeX(t.Context(), "default")
		return err == nil && f.Uint("current-jobs-orphaned") == 1
	})
	if out := list(); !strings.HasSuffix(out, "\n"+below) {
		t.Errorf("without %q:\n%s", below, out)
	}
	for _, args := range [][]string{{"--state", "ready"}, {"-o", "ndjson"}} {
		if out := list(args...); strings.Contains(out, "orphan") {
			t.Errorf("%q:\n%s", args, out)
		}
	}
}
