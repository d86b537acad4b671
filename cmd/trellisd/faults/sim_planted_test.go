//go:build proof

package faults_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mistake is one that a rule of the program keeps it from: text of a file that is replaced before it is compiled, or
// what package planted is told.
type mistake struct {
	name, file, text, instead string
	planted                   string
}

const (
	relayFiles   = "reactor/internal/relay/"
	clusterFiles = "cmd/trellisd/internal/cluster/"
)

// mistakes are those that reviews of the design have named, each of which lost jobs, gave wrong answers, or reset
// clients without need.
var mistakes = []mistake{
	{planted: "no-round"},
	{planted: "early-answer"},
	{planted: "old-term,proposed-again"},
	{planted: "no-holds"},
	{planted: "no-effects"},
	{
		name: "a reply does not wait for its commit", file: "reactor/commit.go",
		text: "return pos != 0 && l.journal.Committed() < pos", instead: "return false",
	},
	{
		name: "what was sent is sent again before the log is applied", file: relayFiles + "replay.go",
		text: "g.log.applied >= g.leader.fence &&", instead: "",
	},
	{
		name: "the next leader does not hear what was executed", file: relayFiles + "replay.go",
		text: "for i := range f.replay.effects {", instead: "for i := range f.replay.effects[:0] {",
	},
	{
		name: "what was sent is not kept", file: relayFiles + "input.go",
		text: "	k.add(p, m)\n", instead: "	f.unresumable = f.sent\n	k.add(p, m)\n",
	},
	{
		name: "a command that waits is answered", file: relayFiles + "channel.go",
		text: "h.answered = h.ends; waits {", instead: "h.answered = h.ends; false {",
	},
	{
		name: "an answer goes on with another one", file: relayFiles + "replayed.go",
		text: "known = d.partial == 0\n		case engine.NotDone:", instead: "known = true\n		case engine.NotDone:",
	},
	{
		name: "effects that are answered are told", file: relayFiles + "log.go",
		text: "return f == nil || e.Offset <= f.answered", instead: "return f == nil",
	},
	{
		name: "a gateway never gives up", file: relayFiles + "contact.go",
		text: "g.host.BootTime()-g.contact.last >= LeaderPatience", instead: "false",
	},
	{
		name: "a loop is told of an entry's first effects only", file: "reactor/applied.go",
		text: "l.effects.post(l, list[:n])", instead: "l.effects.post(l, list[:n/2])",
	},
	{
		name: "sessions whose clients have gone stay", file: "reactor/resumption.go",
		text: "l.server.engine.Load().CloseAbsent(r.end.Number())", instead: "",
	},
	{
		name: "holds end when another member serves", file: clusterFiles + "queue.go",
		text: "q.follower.ServeOn(l.NextID(), now())", instead: "q.follower.Serve(l.NextID(), now())",
	},
	{
		name: "clients go on although the leadership was not settled", file: clusterFiles + "queue.go",
		text: "lives := l.Settled() &&", instead: "lives := true &&",
	},
	{
		name: "a trunk does not wait for the end of the one before", file: clusterFiles + "trunks.go",
		text: "for e.NumberPresent(number) {", instead: "for false {",
	},
	{
		name: "there is no fence", file: clusterFiles + "trunks.go",
		text:    "c.Version, c.Term, c.Fence = version, s.leadership.Term(), fence",
		instead: "c.Version, c.Term, c.Fence = version, s.leadership.Term(), 0*fence",
	},
	{
		name: "a loop is gone as soon as it has no trunk", file: clusterFiles + "gone.go",
		text: "x.ticks >= goneTicks", instead: "x.ticks >= 1",
	},
}

// Each of the mistakes is found.
func TestPlantedMistakesAreFound(t *testing.T) {
	if os.Getenv("TRELLIS_MISTAKES") == "" {
		t.Skip("TRELLIS_MISTAKES is not set: each mistake takes a build")
	}
	const seeds = "200"
	wrong := regexp.MustCompile(`seed (\d+): (.*)`)
	for _, m := range mistakes {
		t.Run(m.name+m.planted, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "mistaken.test")
			build := exec.Command("go", "test", "-c", "-tags", "planted", "-o", program)
			if m.file != "" {
				build.Args = append(build.Args, "-overlay", m.overlay(t))
			}
			if text, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a mistake may keep a history from its end
			defer cancel()
			run := exec.CommandContext(ctx, program,
				"-test.run=^TestHistories$", "-test.timeout=0", "-seed=1", "-runs="+seeds, "-first")
			run.Env = append(os.Environ(), "GOMAXPROCS=1", "TRELLIS_PLANTED="+m.planted)
			text, err := run.CombinedOutput()
			found := wrong.FindSubmatch(text)
			if found == nil {
				t.Fatalf("not found with %s seeds in 5 minutes: %v: %s", seeds, err, text)
			}
			t.Logf("seed %s: %.150s", found[1], found[2])
		})
	}
}

// overlay makes what the compiler reads instead of the file.
func (m *mistake) overlay(t *testing.T) string {
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join("../../..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), m.text) != 1 {
		t.Fatalf("%s has not once %q: %v", m.file, m.text, err)
	}
	mistaken := filepath.Join(dir, "mistaken.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: mistaken}})
	name := filepath.Join(dir, "overlay.json")
	for _, err := range []error{
		err, os.WriteFile(mistaken, []byte(strings.Replace(string(text), m.text, m.instead, 1)), 0o600),
		os.WriteFile(name, list, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return name
}
