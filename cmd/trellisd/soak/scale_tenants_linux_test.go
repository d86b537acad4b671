//go:build proof

package soak

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

func init() {
	scales = append(scales, scale{"tenants", scaleTenants})
	if to := os.Getenv(tenantEnv); to != "" {
		var addr, kind string
		fmt.Sscan(to, &addr, &kind)
		kind = strings.ReplaceAll(kind, "-", " ")
		for range tenantConns {
			go func() {
				for {
					_ = tenantWorst[kind](addr) // whoever is disconnected comes again
				}
			}()
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
}

const (
	// tenantEnv makes a copy of this program the clients of the account that does its worst. It
	// says the server's address, and what they do.
	tenantEnv    = "TRELLIS_TEST_TENANT"
	tenantConns  = 30
	tenantSpan   = 5 * time.Second // of each measurement
	goodAccounts = 9
	goodInterval = 4 * time.Millisecond // from one cycle of a good account to its next
)

// tenantWorst is what the clients of an account do who want to harm others: so much of one thing
// as they can. Each function is one connection's, and returns when that ends.
var tenantWorst = map[string]func(addr string) error{
	"nothing": func(string) error { time.Sleep(time.Second); return nil },
	"puts": func(addr string) error {
		return flood(addr, func(b []byte, n int) []byte { return fmt.Appendf(b, "put 0 0 60 100\r\n%0100d\r\n", n) })
	},
	"large bodies": func(addr string) error {
		body := strings.Repeat("x", 60_000)
		return flood(addr, func(b []byte, _ int) []byte { return fmt.Appendf(b, "put 0 0 60 %d\r\n%s\r\n", len(body), body) })
	},
	"tubes": func(addr string) error {
		return flood(addr, func(b []byte, n int) []byte { return fmt.Appendf(b, "use bad/%d\r\nwatch bad/w%d\r\n", n, n) })
	},
	"keys": func(addr string) error {
		return flood(addr, func(b []byte, n int) []byte {
			return fmt.Appendf(b, "put 0 0 60 1 idp:%d:100000 con:%d\r\nx\r\nreserve-with-timeout 0\r\ndelete %d\r\n", n, n, n)
		})
	},
	"connections": func(addr string) error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err = io.WriteString(c, "auth bad\r\nlist-tube-used\r\n"); err == nil {
			_, err = bufio.NewReader(c).ReadString('\n')
		}
		return err
	},
	"lists": func(addr string) error {
		return flood(addr, func(b []byte, _ int) []byte {
			return append(b, "list-jobs bad/list ready 10000\r\nlist-tubes\r\nstats\r\n"...)
		})
	},
	"rate": func(addr string) error {
		return flood(addr, func(b []byte, _ int) []byte { return append(b, "list-tube-used\r\npeek 1\r\n"...) })
	},
}

// flood sends what next appends as fast as the server takes it, and reads whatever is answered.
func flood(addr string, next func(b []byte, n int) []byte) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	b := []byte("auth bad\r\nuse bad/flood\r\nwatch bad/flood\r\n")
	for n := 0; ; {
		for len(b) < 64<<10 {
			n++
			b = next(b, n)
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
}

// scaleTenants measures how long nine accounts wait for the server while a tenth does its
// worst, within its limits and without any, beside how long they wait when it does nothing. It
// reports times and asserts only that the nine are served.
func scaleTenants(t *testing.T) {
	const limits = " max-jobs 20000 max-memory 20M max-tubes 1000 max-keys 10000 max-connections 30 rate 5000/s"
	for _, bad := range []string{limits, ""} {
		lines := []string{servertest.TokenLine("bad", "bad", "all", "bad/* account bad"), "account bad tubes bad/*" + bad + "\n"}
		for n := range goodAccounts {
			name := fmt.Sprint("good", n)
			lines = append(lines, fmt.Sprintf("account %s tubes %[1]s/* rate 5000/s max-jobs 100000\n", name),
				servertest.TokenLine(name, name, "all", name+"/* account "+name))
		}
		name := "with limits"
		if bad == "" {
			name = "without limits"
		}
		for _, kind := range []string{"puts", "large bodies", "tubes", "keys", "connections", "lists", "rate"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				s := servertest.Start(t, "--loops=2", "--max-memory=2000000000", "--auth-file", servertest.AuthFile(t, lines...))
				filler := s.Dial(0)
				filler.Send("auth bad", "use bad/list")
				filler.Want("AUTHENTICATED", "USING bad/list")
				for range 10 { // of these jobs, lists are made
					filler.Send(slices.Repeat([]string{"put 9 0 60 1\r\nx"}, 500)...)
					for range 500 {
						filler.Line()
					}
				}
				_ = filler.Conn.Close()
				quiet := goodTenants(t, s, "nothing")
				beside := goodTenants(t, s, kind)
				row(t, "p99 %.2f ms, %.2f of that beside an account that does nothing (%.2f ms); longest %.1f ms (%.1f); %d cycles (%d)",
					ms(beside.p99), float64(beside.p99)/float64(quiet.p99), ms(quiet.p99), ms(beside.longest), ms(quiet.longest), beside.n, quiet.n)
			})
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// goodTenants puts, reserves and deletes for the good accounts beside one that does its worst, and
// returns how long each of these commands took.
func goodTenants(t *testing.T, s *servertest.Server, kind string) probeWaits {
	t.Helper()
	worst := exec.Command(os.Args[0])
	worst.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", tenantEnv, s.Addrs[0], strings.ReplaceAll(kind, " ", "-")))
	in, err := worst.StdinPipe()
	servertest.NoError(t, err)
	servertest.NoError(t, worst.Start())
	defer func() {
		in.Close()
		if err := worst.Wait(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}()
	time.Sleep(time.Second) // until it does its worst
	var mu sync.Mutex
	var all []time.Duration
	var tenants sync.WaitGroup
	for n := range goodAccounts {
		c := s.Dial(0)
		name := fmt.Sprint("good", n)
		c.Send("auth "+name, "use "+name+"/q", "watch "+name+"/q", "ignore default")
		for range 4 {
			c.Line()
		}
		tenants.Go(func() {
			var took []time.Duration
			ask := func(command string, lines int) string {
				began := time.Now()
				c.Send(command)
				line := c.Line()
				for range lines - 1 {
					c.Line()
				}
				took = append(took, time.Since(began))
				return line
			}
			for end := time.Now().Add(tenantSpan); time.Now().Before(end); time.Sleep(goodInterval) {
				var id int
				if line := ask("put 0 0 60 1\r\nx", 1); !strings.HasPrefix(line, "INSERTED ") {
					t.Errorf("%s is answered %q", name, line)
					return
				} else if _, err := fmt.Sscanf(line, "INSERTED %d", &id); err != nil {
					t.Error(err)
				}
				ask("reserve", 2)
				if line := ask(fmt.Sprint("delete ", id), 1); line != "DELETED" {
					t.Errorf("%s is answered %q", name, line)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	tenants.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		t.Fatal("nobody was served")
	}
	return probeWaits{n: len(all) / 3, p99: all[len(all)*99/100], longest: all[len(all)-1]}
}
