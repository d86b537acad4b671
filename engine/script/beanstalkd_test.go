package script

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Cases are mostly waiting, so many more than there are processors can run.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestBeanstalkdBehavesAsTheCorpusSays(t *testing.T) {
	path := needBeanstalkd(t)
	target := &Socket{Launch: func(options ...string) (*Process, error) {
		return launchBeanstalkd(path, options...)
	}}
	for _, c := range Corpus() {
		if !c.Applies("1.12") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			// On a machine that has no time for it, a server of which we have only the
			// outside may come late with what a script expects: then again, for a minute.
			err := Play(c, target, "1.12")
			for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
				err = Play(c, target, "1.12")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// needBeanstalkd returns the path of beanstalkd 1.12, which the corpus describes.
func needBeanstalkd(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format+"; skipped, for TRELLIS_NEED_PEERS is not 1", args...)
	}
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		missing("beanstalkd is not installed: %v", err)
	}
	version, err := exec.Command(path, "-v").Output()
	if err != nil || !strings.HasPrefix(string(version), "beanstalkd 1.12") {
		missing("%s is not beanstalkd 1.12: %q, %v", path, version, err)
	}
	return path
}

// launchBeanstalkd lets beanstalkd choose a free port, which it prints, as there
// is no way to choose one for it that nobody else can take meanwhile.
func launchBeanstalkd(path string, options ...string) (*Process, error) {
	cmd := exec.Command(path, append([]string{"-l", "127.0.0.1", "-p", "0", "-V"}, options...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		// bind 3 127.0.0.1:40873
		if words := strings.Fields(lines.Text()); len(words) == 3 && words[0] == "bind" {
			go io.Copy(io.Discard, stdout)
			return &Process{
				Network: "tcp",
				Addr:    words[2],
				Drain: func(on bool) error {
					if !on {
						return errors.ErrUnsupported
					}
					return cmd.Process.Signal(syscall.SIGUSR1)
				},
				Stop: stop,
			}, nil
		}
	}
	stop()
	return nil, fmt.Errorf("beanstalkd printed no port: %s", complaints.String())
}
