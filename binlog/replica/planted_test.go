package replica

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tests of the rules that nothing is lost by would notice if one were broken.
func TestPlantedFaultsAreFound(t *testing.T) {
	if testing.Short() || os.Getenv("TRELLIS_PLANTED") != "" {
		t.Skip("builds the tests anew")
	}
	binary := filepath.Join(t.TempDir(), "replica.test")
	if out, err := exec.Command("go", "test", "-c", "-tags=planted", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(f fault, test string) (string, error) {
		cmd := exec.Command(binary, "-test.run=^"+test+"$", "-test.v")
		cmd.Env = append(os.Environ(), "TRELLIS_PLANTED="+string(f))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for f, test := range map[fault]string{
		noRound:     "TestARoundOfADeposedLeaderDoesNotCount",
		earlyAnswer: "TestVotesAndAcknowledgementsLeaveWhenTheyAreOnDisk",
		oldReign:    "TestAStandbyTakesEntriesOfTheReignOfTheirTermOnly",
	} {
		if out, err := run("none", test); err != nil {
			t.Errorf("%s fails without a fault: %v\n%s", test, err, out)
		}
		out, err := run(f, test)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			t.Errorf("%s does not find %s: %v\n%s", test, f, err, out)
		}
	}
}
