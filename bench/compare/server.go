package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trellis/bench"
	"trellis/bench/load"
)

// A Server is a server that can be started: a name and a command in which {host}, {port} and {dir} stand for where it
// shall listen and for an empty directory of its own, and {http} and {tls} for the ports of its metrics and of TLS. The
// command is split at spaces; there is no shell.
//
// A command with {cluster} in it is that of a member of a cluster, and started three times. {node} stands for the
// member in the form NAME=HOST:PORT, and {cluster} for all members, with commas between them.
type Server struct {
	Name    string
	Command string
}

// ParseServer understands "name=command". Without a name, the base name of the program is taken.
func ParseServer(s string) (Server, error) {
	name, command, named := strings.Cut(s, "=")
	if !named || strings.ContainsAny(name, "/{") || strings.Contains(name, " -") {
		name, command = "", s
	}
	words := strings.Fields(command)
	if len(words) == 0 {
		return Server{}, fmt.Errorf("server %q: no command", s)
	}
	name = cmp.Or(name, path.Base(words[0]))
	if !strings.Contains(command, "{port}") {
		return Server{}, fmt.Errorf("server %q: the command does not say where {port} belongs", s)
	}
	if strings.Contains(command, "{cluster}") &&
		!(strings.Contains(command, "{node}") && strings.Contains(command, "{dir}")) {
		return Server{}, fmt.Errorf("server %q: the command of a member needs {node} and {dir} too", s)
	}
	return Server{name, command}, nil
}

const clusterSize = 3

func (s Server) clustered() bool { return strings.Contains(s.Command, "{cluster}") }

// errNoStart is returned for a server that ends instead of starting, as one does that lacks an option.
var errNoStart = errors.New("the server does not start")

const (
	startTimeout = 60 * time.Second // a server may have a long log to read
	stopTimeout  = 10 * time.Second
)

// errPortTaken is returned for a server that ended while another program had its port.
var errPortTaken = errors.New("another program took the port")

// startAttempts is how many ports a server is started on while other programs take them.
const startAttempts = 5

// start runs the server on the given processors, with more arguments, and returns when it accepts connections. dir
// stands for {dir}. The first process is the one that serves clients; a cluster has others.
func (s Server) start(ctx context.Context, args, dir, token string, cpus []int) (all []*process, err error) {
	start := s.startAlone
	if s.clustered() {
		start = s.startCluster
	}
	for range startAttempts {
		all, err = start(ctx, args, dir, token, cpus)
		if err == nil {
			return all, nil
		}
		killAll(all)
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, fmt.Errorf("starting %s: %w", s.Name, err)
}

// launch starts the command on a port that was free a moment ago. Further pairs of placeholders and what they stand for
// may be given.
func (s Server) launch(args, dir string, cpus []int, pairs ...string) (*process, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p := &process{http: loopback(ports[1]), tls: loopback(ports[2])}
	if p.addr, err = bench.ParseAddress(loopback(ports[0])); err != nil {
		return nil, err
	}
	pairs = append(pairs, "{host}", "127.0.0.1", "{port}", strconv.Itoa(ports[0]), "{dir}", dir,
		"{http}", strconv.Itoa(ports[1]), "{tls}", strconv.Itoa(ports[2]))
	words := strings.Fields(s.Command + " " + args)
	for i, w := range words {
		words[i] = strings.NewReplacer(pairs...).Replace(w)
	}
	return p, p.run(words, cpus)
}

func (s Server) startAlone(ctx context.Context, args, dir, _ string, cpus []int) ([]*process, error) {
	p, err := s.launch(args, dir, cpus)
	if err != nil {
		return nil, err
	}
	return []*process{p}, p.await(ctx, p.addr.Name, startTimeout, func() bool {
		c, err := net.DialTimeout("tcp", p.addr.Name, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// startCluster returns when one of the members leads, and serves clients. It may return
// processes together with an error.
func (s Server) startCluster(ctx context.Context, args, dir, token string, cpus []int) (all []*process, err error) {
	ports, err := freePorts(clusterSize)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for i, port := range ports {
		nodes = append(nodes, memberName(i)+"="+loopback(port))
	}
	for i, node := range nodes {
		own := filepath.Join(dir, memberName(i))
		// A member of the attempt before has noted ports that this one does not have.
		if err := errors.Join(os.RemoveAll(own), os.Mkdir(own, 0o700)); err != nil {
			return all, err
		}
		p, err := s.launch(args, own, cpus, "{node}", node, "{cluster}", strings.Join(nodes, ","))
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	leader := -1
	for i := 0; leader < 0; i = (i + 1) % len(all) {
		p := all[i]
		err := p.await(ctx, p.addr.Name, 100*time.Millisecond, func() bool {
			_, err := load.Stats(&p.addr, token)
			return err == nil && (!strings.Contains(s.Command, "{http}") || leads(p.http))
		})
		switch {
		case err == nil:
			leader = i
		case !errors.Is(err, errSilent) || time.Since(all[0].startTime) > startTimeout:
			return all, err
		}
	}
	all[0], all[leader] = all[leader], all[0]
	return all, nil
}

// leads asks a member that answers clients whether it is the leader. One that knows no such question answers as the
// leader alone.
func leads(addr string) bool {
	c := http.Client{Timeout: 10 * time.Second}
	r, err := c.Get("http://" + addr + "/leaderz")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK || r.StatusCode == http.StatusNotFound
}

func memberName(i int) string { return "n" + strconv.Itoa(i+1) }

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// freePorts finds ports that nobody listens on. Tests keep others from them.
var freePorts = func(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // not before all are found: they shall differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
