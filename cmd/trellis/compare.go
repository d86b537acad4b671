package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"trellis/bench"
)

func compareCommand() *cobra.Command {
	var load loadFlags
	var c bench.Comparison
	var servers []string
	var matrix, markdown, jsonTo string
	cmd := &cobra.Command{
		Use:   "compare [flags] (SCENARIO | recovery | --matrix NAME)",
		Short: "Start servers, and measure them in turn under the same load",
		Long: `Start servers, and measure them in turn under the same load.

Servers run on one processor and the generator on others. Each round measures every server
once, each time freshly started, so that what drifts hits all of them. The table has medians, and the
median, least and greatest ratio to the first server within a round.

A server is given as NAME=COMMAND, in which {host}, {port} and {dir} stand for where it
shall listen and an empty directory. By default, beanstalkd is compared with trellisd.

"recovery" puts jobs into a server, kills it, and measures how long it takes to come back; its
command must have {dir} in it. --matrix standard is the README's table, --matrix durability
measures the modes of the binlog; both add -b, -f and -F to the servers' commands.

` + scenarioList(),
		Example: `  trellis bench compare cycle -c 1000 -t 5s
  trellis bench compare --matrix standard --markdown README.md
  trellis bench compare recovery -n 1000000 --dir /var/tmp --server 'a=beanstalkd -l {host} -p {port} -b {dir}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && matrix == "" || len(args) > 0 && matrix != "" {
				return errors.New("want either a scenario or --matrix")
			}
			rows, err := chooseRows(cmd, &load, matrix, args)
			if err != nil {
				return err
			}
			if c.Servers, err = chooseServers(servers); err != nil {
				return err
			}
			chooseCPUs(&c)
			c.Log = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			t, err := c.Run(cmd.Context(), rows)
			if t == nil {
				return err
			}
			return errors.Join(
				err,
				t.WriteTable(cmd.OutOrStdout()),
				writeTo(cmd.OutOrStdout(), jsonTo, t.WriteJSON),
				updateMarkdown(markdown, t),
				t.Err(),
			)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&servers, "server", nil, "a server, NAME=COMMAND; the first is the one that others are compared with (repeatable)")
	f.IntVar(&c.Rounds, "rounds", 3, "how often each server is measured")
	f.IntSliceVar(&c.ServerCPUs, "server-cpus", nil, "processors of the servers (default the first)")
	f.IntSliceVar(&c.LoadCPUs, "load-cpus", nil, "processors of the generator (default all others)")
	f.StringVar(&c.Dir, "dir", "", "where directories of servers are made (default the system's for temporary files)")
	f.StringVar(&matrix, "matrix", "", "a set of measurements: standard or durability")
	f.StringVar(&markdown, "markdown", "", "write the table into this file, between the lines <!-- bench: begin --> and <!-- bench: end -->")
	f.StringVar(&jsonTo, "json", "", "write all values as JSON to this file; - for standard output")
	load.register(f)
	return cmd
}

func chooseRows(cmd *cobra.Command, load *loadFlags, matrix string, args []string) ([]bench.Row, error) {
	switch {
	case matrix == "standard":
		return bench.StandardMatrix(), nil
	case matrix == "durability":
		return bench.DurabilityMatrix(), nil
	case matrix != "":
		return nil, fmt.Errorf("matrix %q is not known", matrix)
	case args[0] == "recovery":
		cfg, err := load.config(cmd.Flags(), "put")
		if err != nil {
			return nil, err
		}
		if cfg.Count == 0 {
			return nil, errors.New("recovery needs --count, the number of jobs")
		}
		return []bench.Row{bench.RecoveryRow("recovery", "", cfg)}, nil
	}
	cfg, err := load.config(cmd.Flags(), args[0])
	if err != nil {
		return nil, err
	}
	return []bench.Row{bench.LoadRow(cfg)}, nil
}

// chooseServers parses the given servers, or finds the usual ones.
func chooseServers(given []string) ([]bench.Server, error) {
	if len(given) == 0 {
		trellisd, err := findTrellisd()
		if err != nil {
			return nil, err
		}
		const where = " -l {host} -p {port}"
		given = []string{"beanstalkd=beanstalkd" + where, "trellisd=" + trellisd + where}
	}
	var servers []bench.Server
	for _, g := range given {
		s, err := bench.ParseServer(g)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// findTrellisd looks for the server beside this program, and then in the path.
func findTrellisd() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "trellisd")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("trellisd")
	if err != nil {
		return "", fmt.Errorf("trellisd is neither beside this program nor in the path; say --server: %w", err)
	}
	return path, nil
}

// chooseCPUs gives the servers the first processor and the generator the others, unless something else was said or there
// is only one.
func chooseCPUs(c *bench.Comparison) {
	if runtime.GOOS != "linux" || runtime.NumCPU() < 2 {
		return
	}
	if len(c.ServerCPUs) == 0 {
		c.ServerCPUs = []int{0}
	}
	if len(c.LoadCPUs) == 0 {
		for i := 1; i < runtime.NumCPU(); i++ {
			c.LoadCPUs = append(c.LoadCPUs, i)
		}
	}
}

func updateMarkdown(file string, t *bench.Comparisons) error {
	if file == "" {
		return nil
	}
	var b bytes.Buffer
	command := "trellis " + strings.Join(os.Args[1:], " ")
	return errors.Join(t.WriteMarkdown(&b, command), bench.UpdateMarkdown(file, b.Bytes()))
}
