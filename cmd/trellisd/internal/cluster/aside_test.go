package cluster

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/servertest"
)

// asideClient is a client that counts what it sees.
type asideClient struct {
	net.Conn
	r *bufio.Reader
}

// dialAside connects over TLS or without it.
func (r *rig) dialAside(addrs []net.Addr, secure bool) (*asideClient, error) {
	addr := addrs[0]
	if secure {
		addr = addrs[1]
	}
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * patience)) // of all the test
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return &asideClient{c, bufio.NewReader(c)}, nil
}

// say sends some bytes and reads a line.
func (c *asideClient) say(s string) (string, error) {
	if _, err := io.WriteString(c, s); err != nil {
		return "", err
	}
	return c.r.ReadString('\n')
}

// body reads the body of the job that a line tells of.
func (c *asideClient) body(line, format string) (id uint64, body string, err error) {
	var n int
	if _, err := fmt.Sscanf(line, format, &id, &n); err != nil {
		return 0, "", fmt.Errorf("%q: %w", line, err)
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(c.r, b)
	return id, string(b[:n]), err
}

// A cluster of one that steps aside under load, and comes back. Nobody without a job loses the
// connection, every reply is the right one, and none is missing; no job is lost, or comes twice.
func TestClientsGoOnWhenAClusterOfOneStepsAside(t *testing.T) {
	t.Parallel()
	times := 5
	if proof && !servertest.RaceEnabled {
		times = 25
	}
	r := newRig(t, 1)
	r.leader(-1)
	addrs := r.queues[0].Serving().Addrs
	var (
		ending  atomic.Bool // producers and workers end
		jobs    sync.Map    // ids to bodies, of puts that were answered
		deleted sync.Map    // ids of deletes that were answered
		unknown sync.Map    // ids of deletes that were not
		clients sync.WaitGroup
		resets  atomic.Int64
		replies atomic.Int64
	)
	run := func(secure bool, f func(c *asideClient) error) {
		clients.Go(func() {
			c, err := r.dialAside(addrs, secure)
			if err == nil {
				err = f(c)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	large := strings.Repeat("large body ", 5000)
	for i := range 8 {
		secure := i%2 == 1
		run(secure, func(c *asideClient) error { // puts in parts and pipelined, and what it has asked for before
			name := fmt.Sprint("producer", i)
			if line, err := c.say("watch " + name + "\r\nignore default\r\n"); err != nil || line != "WATCHING 2\r\n" {
				return fmt.Errorf("%s: %q: %w", name, line, err)
			}
			if line, err := c.r.ReadString('\n'); err != nil || line != "WATCHING 1\r\n" {
				return fmt.Errorf("%s: %q: %w", name, line, err)
			}
			for n := 0; !ending.Load(); n++ {
				one, two := fmt.Sprint(name, " ", n), fmt.Sprint(name, " ", n, large[:n%len(large)])
				text := fmt.Sprintf("put 0 0 99 %d\r\n%s\r\nlist-tubes-watched\r\nput 0 0 99 %d\r\n%s\r\n", len(one), one, len(two), two)
				half := n * 7 % len(text)
				if _, err := io.WriteString(c, text[:half]); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				time.Sleep(time.Duration(n%5) * time.Millisecond)
				if _, err := io.WriteString(c, text[half:]); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				for _, body := range []string{one, "", two} {
					line, err := c.r.ReadString('\n')
					if err != nil {
						return fmt.Errorf("%s: after %d: %w", name, n, err)
					}
					replies.Add(1)
					var id uint64
					if body == "" {
						want := "---\n- " + name + "\n\r\n"
						got := make([]byte, len(want))
						if _, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
							return fmt.Errorf("%s: %q, %w", name, got, err)
						}
					} else if _, err := fmt.Sscanf(line, "INSERTED %d", &id); err != nil {
						return fmt.Errorf("%s: %q", name, line)
					} else if _, twice := jobs.LoadOrStore(id, body); twice {
						return fmt.Errorf("job %d was inserted twice", id)
					}
				}
			}
			return nil
		})
		run(secure, func(c *asideClient) error { // waits for what does not come
			line, err := c.say("watch nothing\r\n")
			for ; err == nil && strings.HasPrefix(line, "WATCHING") && !ending.Load(); line, err = c.say("watch nothing\r\n") {
				_, _ = c.say("ignore default\r\n")
				if line, err = c.say("reserve-with-timeout 1\r\n"); line != "TIMED_OUT\r\n" {
					return fmt.Errorf("who waits is told %q, %w", line, err)
				}
				replies.Add(1)
			}
			return err
		})
		clients.Go(func() { // is reset when it has a job, and comes again
			for !ending.Load() {
				c, err := r.dialAside(addrs, secure)
				for err == nil && !ending.Load() {
					var line, body string
					var id uint64
					if line, err = c.say("reserve-with-timeout 1\r\n"); err != nil || line == "TIMED_OUT\r\n" {
						continue
					}
					if id, body, err = c.body(line, "RESERVED %d %d"); err != nil {
						continue
					}
					if want, _ := jobs.Load(id); want != nil && want != body {
						t.Errorf("job %d has the body %.50q, and was put as %.50q", id, body, want)
					}
					if _, twice := deleted.Load(id); twice {
						t.Errorf("job %d was deleted, and comes again", id)
					}
					unknown.Store(id, true)
					if line, err = c.say(fmt.Sprintf("delete %d\r\n", id)); err == nil && line == "DELETED\r\n" {
						deleted.Store(id, true)
						replies.Add(1)
					} else if err == nil {
						t.Errorf("the delete of job %d, which the client has, is answered %q", id, line)
					}
				}
				if err != nil {
					resets.Add(1)
				}
				if c != nil {
					_ = c.Close()
				}
			}
		})
		clients.Go(func() { // sends its last, and is answered
			for !ending.Load() {
				c, err := r.dialAside(addrs, secure)
				if err != nil {
					t.Error(err)
					return
				}
				text := strings.Repeat("list-tube-used\r\n", 10) + "reserve\r\n"
				_, _ = io.WriteString(c, "watch never\r\nignore default\r\n"+text)
				_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
				got, err := io.ReadAll(c.r)
				if want := "WATCHING 2\r\nWATCHING 1\r\n" + strings.Repeat("USING default\r\n", 10) + "TIMED_OUT\r\n"; err != nil || string(got) != want {
					t.Errorf("who has sent its last is told %q, %v", got, err)
				}
				replies.Add(11)
				_ = c.Close()
			}
		})
	}
	first, err := r.dialAside(addrs, false)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := first.say(fmt.Sprintf("use large\r\nput 0 0 9 %d\r\n%s\r\n", len(large), large)); err != nil || line != "USING large\r\n" {
		t.Fatal(line, err)
	}
	if _, err := first.r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		run(i == 1, func(c *asideClient) error { // reads slowly
			line, err := c.say("use large\r\n")
			for err == nil && strings.HasPrefix(line, "USING") && !ending.Load() {
				const many = 100
				go func() { _, _ = io.WriteString(c, strings.Repeat("peek-ready\r\n", many)) }()
				for range many {
					if line, err = c.r.ReadString('\n'); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
					if _, body, err := c.body(line, "FOUND %d %d"); err != nil || body != large {
						return fmt.Errorf("who reads slowly got another body of %d bytes, %w", len(body), err)
					}
					replies.Add(1)
				}
				line, err = c.say("use large\r\n")
			}
			return err
		})
	}
	for range times {
		before := replies.Load()
		r.eventually("clients are served", func() bool { return replies.Load() > before+100 })
		if _, err := r.members[0].control(t.Context(), wire.Caller{}, []byte(`{"op":"transfer"}`), nil); err != nil {
			t.Fatal(err)
		}
	}
	ending.Store(true)
	clients.Wait()
	if n := r.queues[0].Leaderships(); n != uint64(times)+1 {
		t.Errorf("it has led %d times", n)
	}

	// What was put is there, once, unless it was deleted.
	c, err := r.dialAside(addrs, false)
	if err != nil {
		t.Fatal(err)
	}
	for {
		line, err := c.say("reserve-with-timeout 0\r\n")
		if err != nil {
			t.Fatal(err)
		}
		if line == "TIMED_OUT\r\n" {
			break
		}
		id, body, err := c.body(line, "RESERVED %d %d")
		if err != nil {
			t.Fatal(err)
		}
		if _, gone := deleted.Load(id); gone {
			t.Errorf("job %d was deleted, and is there", id)
		}
		if want, ok := jobs.LoadAndDelete(id); !ok || want != body {
			t.Errorf("job %d is there with %.50q, and was put as %.50q", id, body, want)
		}
		if line, err := c.say(fmt.Sprintf("delete %d\r\n", id)); line != "DELETED\r\n" {
			t.Fatal(line, err)
		}
	}
	jobs.Range(func(id, body any) bool {
		if _, asked := unknown.Load(id); !asked {
			t.Errorf("job %v, %.50q, is lost", id, body)
		}
		return true
	})
	t.Logf("%d replies, and %d resets of clients with jobs", replies.Load(), resets.Load())
}

// What a leadership that ends otherwise has executed may not be committed: everybody is reset, also if nothing was
// executed at last.
func TestClientsAreResetWhenALeadershipEndsByItself(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		r := newRig(t, 1)
		_, addr := r.leader(-1)
		c, line, err := r.ask(addr, "use x\r\n")
		if err != nil || line != "USING x\r\n" {
			t.Fatal(line, err)
		}
		if held {
			r.queues[0].Hold(true)
		}
		r.members[0].resign("a test")
		_ = c.SetDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); len(b) > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("held: %v; the client is told %q, %v", held, b, err)
		}
		r.eventually("it leads again", func() bool { return r.queues[0].Leaderships() >= 2 })
	}
}
