package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/bench"
)

// controlTimeout bounds an exchange on a control connection. It is long, because some servers are slow
// to create thousands of tubes.
const controlTimeout = 60 * time.Second

// A control is a blocking connection for what is not measured: preparing, asking for statistics, cleaning up.
// One goroutine at a time may use it.
type control struct {
	net.Conn
	in      *bufio.Reader
	out     []byte
	timeout time.Duration // of every exchange
	watched []string
}

// dialControl connects, and authenticates if there is a token. timeout bounds every exchange.
func dialControl(a *bench.Address, token string, timeout time.Duration) (*control, error) {
	nc, err := a.Dial(10 * time.Second)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", a, err)
	}
	c := &control{Conn: nc, in: bufio.NewReaderSize(nc, 64<<10), timeout: timeout, watched: []string{"default"}}
	if token == "" {
		return c, nil
	}
	if _, err := c.exchange("auth "+token, replyAuthenticated); err != nil {
		c.Close()
		return nil, fmt.Errorf("authenticating at %s: %w", a, err)
	}
	return c, nil
}

// Stats connects to a server, authenticates if there is a token, and returns what the server answers to `stats`.
func Stats(a *bench.Address, token string) (map[string]string, error) {
	c, err := dialControl(a, token, controlTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.stats()
}

func (c *control) send() error {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.Write(c.out)
	c.out = c.out[:0]
	return err
}

// receive reads one reply. Its slices hold until the next receive.
func (c *control) receive(r *reply) error {
	line, err := c.peek(1)
	for err == nil {
		n, want := parseReply(line, r)
		if n > 0 {
			if r.kind == replyGarbage {
				return fmt.Errorf("not a reply of the protocol: %q", r.line)
			}
			_, err = c.in.Discard(n)
			return err
		}
		line, err = c.peek(want)
	}
	return fmt.Errorf("reading a reply: %w", err)
}

// peek returns what has come, when that is want bytes at least. Its memory grows with what comes, and not at
// once to what a server announces.
func (c *control) peek(want int) ([]byte, error) {
	for {
		p, err := c.in.Peek(min(max(want, c.in.Buffered()), c.in.Size()))
		if err != nil || len(p) >= want {
			return p, err
		}
		c.in = bufio.NewReaderSize(io.MultiReader(strings.NewReader(string(p)), c.Conn), 2*len(p))
	}
}

// ask sends one command and reads its reply, which must be of that kind.
func (c *control) ask(command string, want replyKind) (*reply, error) {
	r, err := c.exchange(command, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return r, nil
}

// exchange is ask with errors that do not show the command.
func (c *control) exchange(command string, want replyKind) (*reply, error) {
	c.out = append(append(c.out[:0], command...), '\r', '\n')
	r := new(reply)
	err := c.send()
	if err == nil {
		err = c.receive(r)
	}
	if err == nil && r.kind != want {
		err = fmt.Errorf("the server answered %s", r.line)
	}
	return r, err
}

// pipeline sends n commands in batches, each appended by add, and calls got with every reply. After an error of got it
// reads the rest of the batch and ends.
func (c *control) pipeline(n int, add func(b []byte, i int) []byte, got func(i int, r *reply) error) error {
	const batch = 128
	var r reply
	for from := 0; from < n; from += batch {
		to := min(from+batch, n)
		c.out = c.out[:0]
		for i := from; i < to; i++ {
			c.out = add(c.out, i)
		}
		if err := c.send(); err != nil {
			return err
		}
		var failed error
		for i := from; i < to; i++ {
			if err := c.receive(&r); err != nil {
				return err
			}
			if err := got(i, &r); failed == nil {
				failed = err
			}
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// eachJob sends a command with each of the ids behind it, and calls got with every reply.
func (c *control) eachJob(command string, ids []uint64, got func(id uint64, r *reply)) error {
	return c.pipeline(len(ids), func(b []byte, i int) []byte {
		return append(strconv.AppendUint(append(b, command...), ids[i], 10), '\r', '\n')
	}, func(i int, r *reply) error {
		got(ids[i], r)
		return nil
	})
}

// watchOnly watches these tubes and no others. There must be at least one, and they must be either exactly what is
// watched already or have nothing in common with it.
func (c *control) watchOnly(tubes []string) error {
	if slices.Equal(tubes, c.watched) {
		return nil
	}
	n := len(tubes)
	err := c.pipeline(n+len(c.watched), func(b []byte, i int) []byte {
		if i < n {
			return fmt.Appendf(b, "watch %s\r\n", tubes[i])
		}
		return fmt.Appendf(b, "ignore %s\r\n", c.watched[i-n])
	}, func(_ int, r *reply) error {
		if r.kind != replyWatching {
			return fmt.Errorf("watch or ignore: the server answered %q", r.line)
		}
		return nil
	})
	c.watched = tubes
	return err
}

func (c *control) stats() (map[string]string, error) {
	r, err := c.ask("stats", replyOK)
	if err != nil {
		return nil, err
	}
	return parseStats(r.body), nil
}

func parseStats(yaml []byte) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(string(yaml)) {
		if key, value, ok := strings.Cut(line, ": "); ok {
			m[key] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return m
}

// seconds reads a number of seconds such as "12.000340" as nanoseconds.
func seconds(s string) int64 {
	f, _ := strconv.ParseFloat(s, 64)
	return int64(f * 1e9)
}
