package privilege

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"testing"
)

// becomeEnv makes the test binary become the user that the variable names and say
// who it is then, instead of running tests: the change cannot be undone.
const becomeEnv = "TRELLIS_TEST_BECOME"

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(becomeEnv); ok {
		becomeAndReport(name)
	}
	os.Exit(m.Run())
}

func becomeAndReport(name string) {
	u, err := Lookup(name)
	if err == nil {
		err = u.Become()
	}
	if err != nil {
		os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	groups, _ := os.Getgroups()
	words := []string{strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid())}
	for _, g := range groups {
		words = append(words, strconv.Itoa(g))
	}
	os.Stdout.WriteString(strings.Join(words, " "))
	os.Exit(0)
}

func become(t *testing.T, name string) (said string, ok bool) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), becomeEnv+"="+name)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
}

func TestRootBecomesAUserByNameAndByNumber(t *testing.T) {
	asRoot(t)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("this system has no user nobody: ", err)
	}
	for _, name := range []string{"nobody", nobody.Uid} {
		said, ok := become(t, name)
		if !ok {
			t.Errorf("%s: %s", name, said)
			continue
		}
		ids := strings.Fields(said)
		if len(ids) < 2 || ids[0] != nobody.Uid || ids[1] != nobody.Gid {
			t.Errorf("%s: got uid, gid, groups %s; want %s, %s", name, said, nobody.Uid, nobody.Gid)
			continue
		}
		for _, g := range ids[2:] {
			if g == "0" {
				t.Errorf("%s: still in root's group: %s", name, said)
			}
		}
	}
}

func TestUnknownUsersAreToldApartFromFailures(t *testing.T) {
	for _, name := range []string{"no-such-user", "4294967294", "-1", ""} {
		if _, err := Lookup(name); !errors.Is(err, ErrUnknownUser) {
			t.Errorf("%q: %v, want %v", name, err, ErrUnknownUser)
		}
	}
}

func TestBecomingWhoWeAreNeedsNoRights(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip("the current user is unknown: ", err)
	}
	if said, ok := become(t, me.Username); !ok {
		t.Error(said)
	}
}
