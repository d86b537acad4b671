package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"trellis/bench"
	"trellis/bench/internal/host"
	"trellis/bench/internal/quantity"
)

// tlsArgs make trellisd serve TLS beside plain text, and mutualArgs refuse clients without a certificate.
const (
	tlsArgs    = "--tls-listen {host}:{tls} --tls-cert %s --tls-key %s"
	mutualArgs = " --tls-client-ca %s"
)

// stunnelConf is what stunnel is told: to be a proxy that runs in the foreground and leaves delays to its clients.
const stunnelConf = `foreground = yes
pid =
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
[server]
accept = %s
connect = %s
cert = %s
key = %s
`

// stunnelMutual makes stunnel refuse clients without a certificate.
const stunnelMutual = `verifyChain = yes
CAfile = %s
`

// startSecure starts the session's server so that it serves TLS too, and returns what its clients need. A server that
// does not know how gets stunnel in front. With mutual TLS, clients are asked for a certificate.
func (s *session) startSecure(ctx context.Context, cfg *bench.Config, mutual bool) (*certificate, error) {
	if err := host.RaiseFileLimit(2*(cfg.Conns+cfg.Idle+cfg.Waiting) + 100); err != nil { // a proxy needs two each
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trellis-bench-")
	if err != nil {
		return nil, err
	}
	s.dirs = append(s.dirs, dir)
	cert, err := newCertificate(dir)
	if err != nil {
		return nil, err
	}
	args := fmt.Sprintf(tlsArgs, cert.cert, cert.key)
	if mutual {
		args += fmt.Sprintf(mutualArgs, cert.cert)
	}
	err = s.start(ctx, args, s.ServerCPUs)
	if err == nil {
		err = s.awaitTLS(ctx, s.proc, cert)
	}
	if !errors.Is(err, errNoStart) {
		return cert, err
	}
	program, missing := exec.LookPath("stunnel4")
	if missing != nil {
		program, missing = exec.LookPath("stunnel") // its name on other systems than Debian
	}
	if missing != nil {
		return nil, fmt.Errorf("%w; stunnel, which could stand in front of it, is not there either: %w", err, missing)
	}
	for range startAttempts {
		if err = s.start(ctx, "", s.ServerCPUs); err == nil {
			err = s.putInFront(ctx, program, dir, cert, mutual)
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return cert, err
}

func (s *session) putInFront(ctx context.Context, program, dir string, cert *certificate, mutual bool) error {
	conf := filepath.Join(dir, "stunnel.conf")
	text := fmt.Sprintf(stunnelConf, s.proc.tls, s.proc.addr.Name, cert.cert, cert.key)
	if mutual {
		text += fmt.Sprintf(stunnelMutual, cert.cert)
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	p := new(process)
	if err := p.run([]string{program, conf}, s.ServerCPUs); err != nil {
		return fmt.Errorf("starting stunnel: %w", err)
	}
	s.others = append(s.others, p)
	s.notes[NoteProxy] = true
	if err := s.awaitTLS(ctx, p, cert); err != nil {
		return fmt.Errorf("stunnel in front: %w", err)
	}
	return nil
}

// awaitTLS waits until p, which is the server or stunnel, serves TLS.
func (s *session) awaitTLS(ctx context.Context, p *process, cert *certificate) error {
	return p.await(ctx, s.proc.tls, startTimeout, func() bool {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", s.proc.tls, cert.client())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// runSecure puts a load on the server over TLS. What is in front of the server counts as a part of it.
func (s *session) runSecure(ctx context.Context, config *tls.Config, cfg bench.Config) (*bench.RunResult, error) {
	addr, err := bench.ParseTLSAddress(s.proc.tls, config)
	if err != nil {
		return nil, err
	}
	for _, p := range s.others {
		cfg.Beside = append(cfg.Beside, p.cmd.Process.Pid)
	}
	return s.runOn(ctx, addr, cfg)
}

func secureRows() []Measurement {
	cost := func(more string, depth int, limit float64) Measurement {
		cfg := matrixLoad("cycle", func(c *bench.Config) { c.Depth = depth })
		return secureCost("TLS: cycle, 50 connections"+more, cfg, target{valueBelow, limit})
	}
	// Long enough for the server to collect the garbage of the handshakes.
	idle := matrixLoad("idle", func(c *bench.Config) { c.Conns, c.Duration, c.Warmup = 2000, 3*time.Second, 0 })
	return []Measurement{
		cost("", 1, 1.25),
		cost(", 32 pipelined", 32, 1.35),
		secureIdle("TLS: 2,000 idle connections", idle, false),
		secureIdle("TLS: 2,000 idle connections, clients have certificates", idle, true),
		handshakes("TLS: connect, full handshake", false),
		handshakes("TLS: connect, resumed session", true),
		firstCommand(),
	}
}

// secureCost is a load over TLS, and the processor time of a command as a multiple of that in plain text.
func secureCost(name string, cfg bench.Config, goal target) Measurement {
	figures := []measured{cpuFigure.with(noMoreThanFirst, target{}), rateFigure}
	over := cfg
	over.Duration = 2 * cfg.Duration
	return Measurement{
		name: name,
		figures: []figure{
			figures[0].figure,
			{name: cpuFigure.name + ", TLS / plain", unit: quantity.Multiple, atLeast: goal, aim: goal},
			figures[1].figure,
		},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			cert, err := s.startSecure(ctx, &cfg, false)
			if err != nil {
				return nil, err
			}
			runs, err := s.between(ctx, cfg, func() (*bench.RunResult, error) {
				return s.runSecure(ctx, cert.client(), over)
			})
			if err != nil {
				return nil, err
			}
			return []float64{cpuFigure.value(runs[1]), runs.times(cpuFigure.value), rateFigure.value(runs[1])}, nil
		},
	}
}

// secureIdle is the memory of connections over TLS that do nothing.
func secureIdle(name string, cfg bench.Config, mutual bool) Measurement {
	return oneRun(name, func(ctx context.Context, s *session) (*bench.RunResult, error) {
		cert, err := s.startSecure(ctx, &cfg, mutual)
		if err != nil {
			return nil, err
		}
		config := cert.client()
		var asked atomic.Int64
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked.Add(1)
			return &cert.pair, nil
		}
		r, err := s.runSecure(ctx, config, cfg)
		if err != nil {
			return nil, err
		}
		if n := asked.Load(); mutual && n < int64(cfg.Conns) && len(r.Violations) == 0 {
			return nil, fmt.Errorf("the server has asked %d of %d clients for a certificate", n, cfg.Conns)
		}
		return r, nil
	}, memoryFigure.with(target{valueBelow, 9 * 1024}, target{}))
}

// handshakes are connections that have one command answered and close.
func handshakes(name string, resumed bool) Measurement {
	cfg := matrixLoad("connect", func(c *bench.Config) { c.Threads = 4 }) // each has one handshake under way
	cost := taken("server CPU a connection", quantity.Nanoseconds, func(r *bench.RunResult) float64 {
		if r.Units == 0 {
			return 0
		}
		return r.CPUPerCommand * r.Commands / r.Units
	})
	return oneRun(name, func(ctx context.Context, s *session) (*bench.RunResult, error) {
		cert, err := s.startSecure(ctx, &cfg, false)
		if err != nil {
			return nil, err
		}
		config := cert.client()
		var all, again atomic.Int64
		config.VerifyConnection = func(state tls.ConnectionState) error {
			all.Add(1)
			if state.DidResume {
				again.Add(1)
			}
			return nil
		}
		if resumed {
			config.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
		r, err := s.runSecure(ctx, config, cfg)
		if err == nil && resumed && again.Load() < all.Load()/2 { // some may begin before the first ticket has come
			return nil, fmt.Errorf("%d of %d sessions were resumed", again.Load(), all.Load())
		}
		return r, err
	}, cost.with(noMoreThanFirst, target{}), unitRate("handshakes"))
}

const firstCommands = 21

// firstCommand is the time from the first command of a client without TCP_NODELAY to its reply. A server that does not
// acknowledge the end of the handshake at once makes such a client wait for the acknowledgement.
func firstCommand() Measurement {
	return Measurement{
		name: "TLS: a client without TCP_NODELAY",
		figures: []figure{{
			name: "p50 of its first command", unit: quantity.Nanoseconds,
			atLeast: target{valueBelow, float64(5 * time.Millisecond)},
		}},
		measure: func(ctx context.Context, s *session) ([]float64, error) {
			cert, err := s.startSecure(ctx, &bench.Config{Conns: firstCommands}, false)
			if err != nil {
				return nil, err
			}
			config := cert.client()
			config.ServerName = "127.0.0.1"
			var took []float64
			for range firstCommands {
				d, err := timeFirstCommand(s.proc.tls, config, s.Token)
				if err != nil {
					return nil, fmt.Errorf("a first command: %w", err)
				}
				took = append(took, float64(d))
			}
			slices.Sort(took)
			return []float64{quantity.Median(took)}, nil
		},
	}
}

// timeFirstCommand is the time from a client's first command to its reply. With a token, the first command
// is the one that authenticates.
func timeFirstCommand(addr string, config *tls.Config, token string) (time.Duration, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := errors.Join(c.(*net.TCPConn).SetNoDelay(false), c.SetDeadline(time.Now().Add(10*time.Second))); err != nil {
		return 0, err
	}
	secure := tls.Client(c, config)
	if err := secure.Handshake(); err != nil {
		return 0, err
	}
	command, reply := "list-tube-used\r\n", "USING default\r\n"
	if token != "" {
		command, reply = "auth "+token+"\r\n", "AUTHENTICATED\r\n"
	}
	began := time.Now()
	if _, err := io.WriteString(secure, command); err != nil {
		return 0, err
	}
	got := make([]byte, len(reply))
	if _, err := io.ReadFull(secure, got); err != nil {
		return 0, err
	}
	if string(got) != reply {
		return 0, fmt.Errorf("the server answered %q", got)
	}
	return time.Since(began), nil
}
