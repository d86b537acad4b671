//go:build proof

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServersThatWantATokenAreCompared(t *testing.T) {
	trellisd, err := server()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	token, access := filepath.Join(dir, "token"), filepath.Join(dir, "access")
	credential, errs, status := trellis(t, "token", "new", token)
	if status != 0 {
		t.Fatal(errs)
	}
	if err := os.WriteFile(access, []byte("bench "+strings.TrimSpace(credential)+" all *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := "x=" + trellisd + " -l {host} -p {port} --auth-file " + access
	for _, what := range [][]string{{"-n", "100", "-c", "3", "cycle"}, {"--matrix", "standard", "--rows", "TCP_NODELAY"}} {
		args := append([]string{"bench", "compare", "--server", command, "--rounds", "1"}, what...)
		if out, errs, status := trellisIn(t, nil, append(args, "--token-file", token)...); status != 0 {
			t.Errorf("%v: status %d\n%s%s", what, status, out, errs)
		}
		if _, errs, status := trellisIn(t, nil, args...); status != 1 || !strings.Contains(errs, "UNKNOWN_COMMAND") {
			t.Errorf("%v without the token: status %d\n%s", what, status, errs)
		}
	}
}

func TestAClusterIsComparedWithAServerAlone(t *testing.T) {
	trellisd, err := server()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	md := filepath.Join(dir, "README.md")
	keeps := trellisd + " -l {host} -p {port} --http {host}:{http} -b {dir} "
	// A leader that stands still is deposed, and closes the connections of the load.
	for tries := 1; ; tries++ {
		out, errs, status := trellisIn(t, nil, "bench", "compare", "--matrix", "cluster", "--rows", "put, 50", "-t", "300ms", "--rounds", "1",
			"--dir", dir, "--markdown", md, "--server", "alone="+keeps+"-f 0", "--server", "three="+keeps+"--node {node} --cluster {cluster}")
		text, err := os.ReadFile(md)
		if status == 0 && err == nil && !strings.Contains(string(text), "cannot") && !strings.Contains(string(text), "fails") {
			for _, want := range []string{"<!-- bench cluster: begin -->", "| put, 50 connections | commands |", "|  | batches | "} {
				if !strings.Contains(string(text), want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			return
		}
		if tries == 5 {
			t.Fatalf("status %d, %v\n%s%s\n%s", status, err, out, errs, text)
		}
	}
}
