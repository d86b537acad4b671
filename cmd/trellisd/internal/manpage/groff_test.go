//go:build proof

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestGroffFindsNothingToWarnOf(t *testing.T) {
	path, err := exec.LookPath("groff")
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("%v (make proof installs it)", err)
	}
	cmd := exec.Command(path, "-man", "-Tutf8", "-ww", "-z")
	cmd.Stdin = strings.NewReader(page("1.0", "2024-02-29"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
