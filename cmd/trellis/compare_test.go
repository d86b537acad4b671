package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"trellis/bench/compare"
)

func TestServersAndGeneratorShareNoProcessor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processors cannot be chosen here")
	}
	for _, c := range []struct {
		n                      int
		server, load           []int
		askedServer, askedLoad []int
		wrong                  bool
	}{
		{n: 1},
		{n: 2, server: []int{0}, load: []int{1}},
		{n: 4, server: []int{0}, load: []int{1, 2, 3}},
		{n: 4, askedServer: []int{1}, server: []int{1}, load: []int{0, 2, 3}},
		{n: 4, askedLoad: []int{0, 2}, server: []int{1}, load: []int{0, 2}},
		{n: 4, askedServer: []int{2, 3}, askedLoad: []int{0}, server: []int{2, 3}, load: []int{0}},
		{n: 4, askedServer: []int{0, 1}, askedLoad: []int{1, 2}, wrong: true},
		{n: 2, askedServer: []int{0, 1}, wrong: true},
		{n: 2, askedLoad: []int{0, 1}, wrong: true},
		{n: 1, askedServer: []int{0}, wrong: true},
	} {
		got := compare.Comparison{ServerCPUs: c.askedServer, LoadCPUs: c.askedLoad}
		err := chooseCPUs(&got, c.n)
		if (err != nil) != c.wrong {
			t.Errorf("%+v: got %v", c, err)
		}
		if !c.wrong && (!slices.Equal(got.ServerCPUs, c.server) || !slices.Equal(got.LoadCPUs, c.load)) {
			t.Errorf("%+v: got %v and %v", c, got.ServerCPUs, got.LoadCPUs)
		}
	}
}

func TestProgramsAreNamedFromTheWorkingDirectory(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(here, "bin", "trellisd"):     "bin/trellisd",
		filepath.Join(here, "trellisd"):            "./trellisd",
		filepath.Join(filepath.Dir(here), "other"): "../other",
	} {
		if got, err := fromHere(path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
}
