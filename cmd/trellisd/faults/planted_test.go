//go:build proof

package faults_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mistake is one that a rule of the program keeps it from: text of a file that is replaced before it is compiled, or
// what package planted is told.
type mistake struct{ Name, File, Text, Instead, Planted string }

// mistakes are those that reviews of the design have named, each of which lost jobs, gave wrong answers, or reset
// clients without need.
func mistakes(t *testing.T) (all []mistake) {
	text, err := os.ReadFile(filepath.Join("testdata", "mistakes.json"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each of the mistakes is found, and most of them soon.
func TestPlantedMistakesAreFound(t *testing.T) {
	if os.Getenv("TRELLIS_MISTAKES") == "" {
		t.Skip("TRELLIS_MISTAKES is not set: each mistake takes a build")
	}
	const seeds, soon = "200", 20
	wrong := regexp.MustCompile(`seed (\d+): (.*)`)
	var first []int // seeds by which mistakes were found
	all := mistakes(t)
	for _, m := range all {
		t.Run(m.Name+m.Planted, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "mistaken.test")
			build := exec.Command("go", "test", "-c", "-tags", "planted", "-o", program)
			if m.File != "" {
				build.Args = append(build.Args, "-overlay", m.overlay(t))
			}
			if text, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // a mistake may keep a history from its end
			defer cancel()
			run := exec.CommandContext(ctx, program,
				"-test.run=^TestHistories$", "-test.timeout=0", "-seed=1", "-runs="+seeds, "-first")
			run.Env = append(os.Environ(), "GOMAXPROCS=1", "TRELLIS_PLANTED="+m.Planted)
			text, err := run.CombinedOutput()
			found := wrong.FindSubmatch(text)
			if found == nil {
				t.Fatalf("not found with %s seeds: %v: %s", seeds, err, text)
			}
			t.Logf("seed %s: %.150s", found[1], found[2])
			n, _ := strconv.Atoi(string(found[1])) // digits
			first = append(first, n)
		})
	}
	slices.Sort(first)
	if n := len(first); n == len(all) {
		t.Logf("the median is seed %d", first[n/2])
		if first[n/2] > soon {
			t.Errorf("it should be %d", soon)
		}
	}
}

// overlay makes what the compiler reads instead of the file.
func (m *mistake) overlay(t *testing.T) string {
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join("../../..", m.File))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), m.Text) != 1 {
		t.Fatalf("%s has not once %q: %v", m.File, m.Text, err)
	}
	mistaken := filepath.Join(dir, "mistaken.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: mistaken}})
	name := filepath.Join(dir, "overlay.json")
	for _, err := range []error{
		err, os.WriteFile(mistaken, []byte(strings.Replace(string(text), m.Text, m.Instead, 1)), 0o600),
		os.WriteFile(name, list, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return name
}
