package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"trellis/bench/compare"

	"github.com/spf13/cobra"
)

func compareCommand() *cobra.Command {
	var flags loadFlags
	var c compare.Comparison
	var servers []string
	var matrix, rows, markdown, jsonTo string
	var token tokenFlag
	cmd := &cobra.Command{
		Use:   "compare [flags] (SCENARIO | recovery | --matrix NAME)",
		Short: "Start servers, and measure them in turn under the same load",
		Long: `Start servers, and measure them in turn under the same load.

Servers run on one processor and the generator on others. Each round measures every server
once, each time freshly started, so that what drifts affects all of them. The table has medians, and
the median, least and greatest ratio of the last server to each other one within a round. Targets
hold for the last server; their ratios are those to the first.

A server is given as NAME=COMMAND, in which {host}, {port} and {dir} stand for where it shall listen
and for an empty directory. By default, beanstalkd is compared with trellisd; with --server, every
server is named, in the order of the table.

A command with {cluster} in it is that of a member of a cluster, and started three times; {node} stands
for the member, and {http} for the port of its metrics. The member that serves clients is loaded.

"recovery" puts jobs into a server, kills it, and measures how long it takes to come back; its
command must have {dir} in it. --matrix standard is the table of bench/RESULTS.md, --matrix durability
measures the modes of the binlog; both add -b, -f and -F to the servers' commands. The standard matrix
measures TLS too, with options of trellisd; servers that lack them get stunnel in front, if the path has
it. --matrix cluster compares trellisd -b DIR -f 0 with a cluster of three, --matrix spill trellisd -b DIR
with and without --body-memory. With a matrix, --duration is the most that any load lasts.

` + scenarioList(),
		Example: `  trellis bench compare cycle -c 1000 -t 5s
  trellis bench compare --matrix standard --markdown bench/RESULTS.md
  trellis bench compare --matrix standard --rows TLS
  trellis bench compare --matrix cluster --markdown bench/RESULTS.md
  trellis bench compare --matrix standard --server 'beanstalkd=beanstalkd -l {host} -p {port}' \
    --server 'fork=/opt/fork/beanstalkd -l {host} -p {port}' --server 'trellisd=bin/trellisd -l {host} -p {port}'
  trellis bench compare recovery -n 1000000 --dir /var/tmp --server 'a=beanstalkd -l {host} -p {port} -b {dir}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && matrix == "" || len(args) > 0 && matrix != "" {
				return errors.New("want either a scenario or --matrix")
			}
			measurements, err := chooseMeasurements(&flags, matrix, rows, args)
			if err != nil {
				return err
			}
			if c.Servers, err = chooseServers(servers, matrix); err != nil {
				return err
			}
			if c.Token, err = token.read(); err != nil {
				return err
			}
			if matrix != "" && cmd.Flags().Changed("duration") {
				c.Longest = flags.cfg.Duration
			}
			if err := chooseCPUs(&c, runtime.NumCPU()); err != nil {
				return err
			}
			c.Log = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			t, err := c.Run(cmd.Context(), measurements)
			if t == nil {
				return err
			}
			if err == nil {
				err = updateMarkdown(markdown, matrix, t)
			}
			return errors.Join(
				err,
				t.WriteTable(cmd.OutOrStdout()),
				writeTo(cmd.OutOrStdout(), jsonTo, t.WriteJSON),
				t.Err(),
			)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&servers, "server", nil,
		"a server, NAME=COMMAND (repeatable); the last is compared with each of the others")
	f.IntVar(&c.Rounds, "rounds", 3, "how often each server is measured")
	f.IntSliceVar(&c.ServerCPUs, "server-cpus", nil,
		"processors of the servers (default the first that the generator does not use)")
	f.IntSliceVar(&c.LoadCPUs, "load-cpus", nil, "processors of the generator (default all others)")
	f.StringVar(&c.Dir, "dir", "",
		"where directories of servers are made (default the system's for temporary files, "+
			"or the working directory when that is in memory)")
	f.StringVar(&matrix, "matrix", "", "a set of measurements: "+namesOfMatrices())
	f.StringVar(&rows, "rows", "", "only those measurements of the matrix that have this in their name")
	token.register(f)
	f.StringVar(&markdown, "markdown", "",
		"write the table into this file, between the lines <!-- bench: begin --> and <!-- bench: end -->; "+
			"of cluster and spill, <!-- bench cluster: begin --> and so on")
	f.StringVar(&jsonTo, "json", "", "write all values as JSON to this file; - for standard output")
	flags.register(cmd)
	return cmd
}

func chooseMeasurements(flags *loadFlags, matrix, rows string, args []string) ([]compare.Measurement, error) {
	if matrix == "" {
		if rows != "" {
			return nil, errors.New("--rows are those of a --matrix")
		}
		return chooseScenario(flags, args[0])
	}
	if name := flags.given("duration"); name != "" {
		return nil, fmt.Errorf("--%s has no effect: a matrix has loads of its own", name)
	}
	m := findMatrix(matrix)
	if m == nil {
		return nil, fmt.Errorf("matrix %q is not known", matrix)
	}
	other := func(m compare.Measurement) bool { return !strings.Contains(m.Name(), rows) }
	all := slices.DeleteFunc(m.measurements(), other)
	if len(all) == 0 {
		return nil, fmt.Errorf("no measurement of the matrix has %q in its name", rows)
	}
	return all, nil
}

// chooseScenario returns the measurement that is asked for by the name of a scenario.
func chooseScenario(flags *loadFlags, name string) ([]compare.Measurement, error) {
	if name == "recovery" {
		cfg, err := flags.config("put")
		if err != nil {
			return nil, err
		}
		if cfg.Count == 0 {
			return nil, errors.New("recovery needs --count, the number of jobs")
		}
		return []compare.Measurement{compare.Recovery("recovery", "", cfg)}, nil
	}
	cfg, err := flags.config(name)
	if err != nil {
		return nil, err
	}
	return []compare.Measurement{compare.Load(cfg)}, nil
}

// A matrix is a set of measurements that --matrix names.
type matrix struct {
	name         string
	measurements func() []compare.Measurement
	// servers are those of a matrix with servers of its own, which has a table of its own in a file. where is how
	// trellisd is started.
	servers func(where string) []string
}

var matrices = []matrix{
	{"standard", compare.StandardMatrix, nil},
	{"durability", compare.DurabilityMatrix, nil},
	{"cluster", compare.ClusterMatrix, func(where string) []string {
		keeps := where + " --http {host}:{http} -b {dir}"
		return []string{"alone=" + keeps + " -f 0", "cluster of three=" + keeps + " --node {node} --cluster {cluster}"}
	}},
	{"spill", compare.SpillMatrix, func(where string) []string {
		with := fmt.Sprintf(" --body-memory %d", compare.SpillLimit)
		return []string{"all in memory=" + where + " -b {dir}", "64 MB of bodies=" + where + " -b {dir}" + with}
	}},
}

func findMatrix(name string) *matrix {
	i := slices.IndexFunc(matrices, func(m matrix) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return &matrices[i]
}

func namesOfMatrices() string {
	var names []string
	for _, m := range matrices {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// chooseServers parses the given servers, or finds the usual ones.
func chooseServers(given []string, matrix string) ([]compare.Server, error) {
	if len(given) == 0 {
		trellisd, err := findTrellisd()
		if err != nil {
			return nil, err
		}
		const where = " -l {host} -p {port}"
		given = []string{"beanstalkd=beanstalkd" + where, "trellisd=" + trellisd + where}
		if m := findMatrix(matrix); m != nil && m.servers != nil {
			given = m.servers(trellisd + where)
		}
	}
	var servers []compare.Server
	for _, g := range given {
		s, err := compare.ParseServer(g)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// findTrellisd looks for the server beside this program, and then in the path. What it returns is shown with the
// figures: it says no more of this machine than it must.
func findTrellisd() (string, error) {
	const name = "trellisd"
	inPath, pathErr := exec.LookPath(name)
	self, err := os.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil && beside != inPath {
			return fromHere(beside)
		}
	}
	if pathErr != nil {
		return "", fmt.Errorf("trellisd is neither beside this program nor in the path; say --server: %w", pathErr)
	}
	return name, nil
}

// fromHere returns the path of a program as one from the working directory.
func fromHere(path string) (string, error) {
	here, err := os.Getwd()
	if err == nil {
		path, err = filepath.Rel(here, path)
	}
	if !strings.Contains(path, "/") {
		path = "./" + path // otherwise it would be looked for in the path
	}
	return path, err
}

// chooseCPUs gives the servers the first of n processors and the generator the others, unless something else was said
// or there is only one. The two must not share any.
func chooseCPUs(c *compare.Comparison, n int) error {
	if given := len(c.ServerCPUs) + len(c.LoadCPUs); given > 0 || runtime.GOOS == "linux" && n > 1 {
		if len(c.ServerCPUs) == 0 {
			c.ServerCPUs = others(n, c.LoadCPUs)
			c.ServerCPUs = c.ServerCPUs[:min(1, len(c.ServerCPUs))]
		}
		if len(c.LoadCPUs) == 0 {
			c.LoadCPUs = others(n, c.ServerCPUs)
		}
		if len(c.ServerCPUs) == 0 || len(c.LoadCPUs) == 0 {
			return fmt.Errorf("%d processors are not enough for the servers and the generator", n)
		}
	}
	for _, cpu := range c.ServerCPUs {
		if slices.Contains(c.LoadCPUs, cpu) {
			return fmt.Errorf("processor %d cannot be both the servers' and the generator's", cpu)
		}
	}
	return nil
}

// others returns the first n processors but for the taken ones.
func others(n int, taken []int) []int {
	var free []int
	for i := range n {
		if !slices.Contains(taken, i) {
			free = append(free, i)
		}
	}
	return free
}

// updateMarkdown writes the table into the place that the file has for it.
func updateMarkdown(file, matrix string, t *compare.Table) error {
	if file == "" {
		return nil
	}
	mark := "bench"
	if m := findMatrix(matrix); m != nil && m.servers != nil {
		mark += " " + matrix
	}
	var b bytes.Buffer
	command := "trellis " + strings.Join(os.Args[1:], " ")
	return errors.Join(t.WriteMarkdown(&b, command), compare.UpdateMarkdown(file, mark, b.Bytes()))
}
