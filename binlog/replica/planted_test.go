//go:build proof && !race

package replica

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"trellis/binlog/replica/internal/planted"
)

// The tests of the rules that nothing is lost by would notice if one were broken.
func TestPlantedFaultsAreFound(t *testing.T) {
	binaries := map[string]string{}
	for _, dir := range []string{".", "./member"} {
		binaries[dir] = filepath.Join(t.TempDir(), "planted.test")
		if out, err := exec.Command("go", "test", "-c", "-tags=planted", "-o", binaries[dir], dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run := func(f planted.Fault, dir, test string) (string, error) {
		cmd := exec.Command(binaries[dir], "-test.run=^"+test+"$", "-test.v")
		cmd.Env = append(os.Environ(), "TRELLIS_PLANTED="+string(f))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for f, by := range map[planted.Fault]struct{ dir, test string }{
		planted.NoRound:     {".", "TestARoundOfADeposedLeaderDoesNotCount"},
		planted.EarlyAnswer: {".", "TestVotesAndAcknowledgementsLeaveWhenTheyAreOnDisk"},
		planted.OldTerm:     {".", "TestAStandbyTakesEntriesOfTheTermOfTheirTermOnly"},
		planted.NoEffects:   {".", "TestAnEntryTellsOfItsEffectsOnce"},
		planted.WipedVotes:  {"./member", "TestAWipedNodeDoesNotComeBackAsItself"},
	} {
		if out, err := run("none", by.dir, by.test); err != nil {
			t.Errorf("%s fails without a fault: %v\n%s", by.test, err, out)
		}
		out, err := run(f, by.dir, by.test)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			t.Errorf("%s does not find %s: %v\n%s", by.test, f, err, out)
		}
	}
}
