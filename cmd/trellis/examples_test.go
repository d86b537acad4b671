//go:build proof

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trellis/cmd/internal/client"
)

// TestTheToolByExample does what `trellis help` shows, on a server that has the jobs for it.
func TestTheToolByExample(t *testing.T) {
	t.Parallel()
	addr := "unix:" + startTrellisd(t)
	fillForExamples(t.Context(), t, connect(t, addr))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "trellis")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eux")
	cmd.Stdin = strings.NewReader(examples)
	cmd.Env = append(os.Environ(), mainEnv+"=1", "TRELLIS_ADDR="+addr, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`{"user": 17}`,
		"1 buried job of tube mail kicked",
		"1 job buried",
		"2 buried jobs of tube mail copied",
		"3 buried jobs of tube mail moved",
		"1 ready job of tube mail deleted",
		"would delete the jobs of tube mail.test: 2 ready",
		"2 jobs of tube mail.test deleted",
		"tube mail paused for 10 m",
		`"name":"mail.failed"`,
		"put into tube news",
		"1,000 jobs put",
		"numbers.copy  1,000 ",
		"line 1: tube reports, next at 20",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

func fillForExamples(ctx context.Context, t *testing.T, c *client.Conn) {
	t.Helper()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(c.Use(ctx, "mail"))
	for i := range 24 {
		j := client.NewJob{TTR: 60, Body: fmt.Appendf(nil, `{"user": %d}`, 15+i)}
		if i == 4 {
			j.Delay = 3600
		}
		put, err := c.Put(ctx, &j)
		do(err)
		if i >= 1 && i <= 3 {
			_, err := c.ReserveJob(ctx, put.ID)
			do(err)
			do(c.Bury(ctx, put.ID, 0))
		}
	}
	do(c.Use(ctx, "default"))
}
