package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trellis/bench"
	"trellis/bench/load"
	"trellis/cmd/internal/quantity"
)

func benchCommand() *cobra.Command {
	return commands(&cobra.Command{
		Use:   "bench",
		Short: "Put load on servers, check what they do, and measure them",
		Long: `Put load on any server that speaks the beanstalkd protocol.

Every job is checked: it must come back exactly once and intact. A lost, duplicated or
corrupted job, and any error reply, is reported and makes the exit status 1.`,
	}, runCommand(), compareCommand())
}

type loadFlags struct {
	cfg   bench.Config
	size  string
	mix   string
	flags *pflag.FlagSet // those of the load, without the other flags of the command
}

func (l *loadFlags) register(cmd *cobra.Command) {
	f := pflag.NewFlagSet("load", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&l.size, "size", "",
		"body size: 100 (default), 10-1000, exp:500 or 100*90,64k*10 (sizes with weights)")
	f.IntVarP(&l.cfg.Conns, "conns", "c", 50, "connections")
	f.IntVar(&l.cfg.Producers, "producers", 0,
		"how many of the connections put, where others reserve (default by scenario)")
	f.IntVarP(&l.cfg.Depth, "depth", "d", 1, "commands in flight on each connection (one reserve where others put)")
	f.IntVar(&l.cfg.Threads, "threads", 1, "threads of the generator")
	f.IntVar(&l.cfg.Tubes, "tubes", 0, "tubes that the jobs are spread over (default by scenario)")
	f.Float64Var(&l.cfg.Rate, "rate", 0,
		"units begun in a second (open loop, latency from when each was due); 0: one when another ends (closed loop)")
	f.DurationVarP(&l.cfg.Duration, "duration", "t", 10*time.Second, "length of a run")
	f.Int64VarP(&l.cfg.Count, "count", "n", 0, "end a run after so many units instead")
	f.DurationVar(&l.cfg.Warmup, "warmup", time.Second, "load before that, unrecorded; with --count none unless given")
	f.Uint64Var(&l.cfg.Seed, "seed", 1, "seed of all that is random")
	f.IntVar(&l.cfg.Backlog, "backlog", 0,
		"closed loop with jobs taken out: put no more while so many are in the server (default by scenario)")
	f.IntVar(&l.cfg.Idle, "idle", 0, "further connections that do nothing")
	f.IntVar(&l.cfg.Waiting, "waiting", 0, "further connections that wait for a job in vain")
	f.IntVar(&l.cfg.Held, "held", 0, "jobs that each connection holds reserved all the time")
	f.IntVar(&l.cfg.FurtherTubes, "further-tubes", 0, "further tubes, each with a delayed job")
	f.DurationVar(&l.cfg.Delay, "delay", 0, forScenario(load.Delay)+"the longest delay, in whole seconds (default 1s)")
	f.DurationVar(&l.cfg.Timeout, "timeout", time.Second, forScenario(load.Timeout)+"the timeout, in whole seconds")
	f.StringVar(&l.mix, "mix", "", forScenario(load.Mix)+"the file with weights and commands")
	f.DurationVar(&l.cfg.ReplyTimeout, "patience", 10*time.Second, "give up when no reply has come for so long")
	l.flags = f
	cmd.Flags().AddFlagSet(f)
	cmd.MarkFlagsMutuallyExclusive("duration", "count")
}

// forScenario begins the help text of a flag that only some scenarios have a use for.
func forScenario(option load.Options) string {
	return "scenario " + strings.Join(load.UsedBy(option), ", ") + ": "
}

// given returns the name of a flag other than except that was given, and "" when none was.
func (l *loadFlags) given(except string) string {
	name := ""
	l.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != except {
			name = f.Name
		}
	})
	return name
}

// config completes the configuration with what the flags say in words.
func (l *loadFlags) config(scenario string) (cfg bench.Config, err error) {
	f := l.flags
	cfg = l.cfg
	cfg.Scenario = scenario
	if l.size != "" {
		if cfg.Size, err = bench.ParseSizes(l.size, quantity.Bytes.Parse); err != nil {
			return cfg, err
		}
	}
	if l.mix != "" {
		file, err := os.Open(l.mix)
		if err != nil {
			return cfg, err
		}
		defer file.Close()
		if cfg.Mix, err = bench.ParseMix(file); err != nil {
			return cfg, fmt.Errorf("%s: %w", l.mix, err)
		}
	}
	if cfg.Count > 0 && !f.Changed("warmup") {
		cfg.Warmup = 0
	}
	if !f.Changed("timeout") && !slices.Contains(load.UsedBy(load.Timeout), scenario) {
		cfg.Timeout = 0
	}
	return cfg, nil
}

// scenarioList is the part of a help text that lists the scenarios.
func scenarioList() string {
	var b strings.Builder
	b.WriteString("Scenarios:\n")
	for _, s := range load.Scenarios() {
		fmt.Fprintf(&b, "  %-16s %s\n", s.Name, s.About)
	}
	return b.String()
}

func runCommand() *cobra.Command {
	var flags loadFlags
	var to target
	var jsonTo, csvTo, logTo string
	var token tokenFlag
	cmd := &cobra.Command{
		Use:   "run [flags] SCENARIO",
		Short: "Run one scenario against a server",
		Long: "Run one scenario against a server. The jobs go into tubes of the run's own and are taken out again.\n\n" +
			scenarioList(),
		Example: `  trellis bench run cycle
  trellis bench run -a unix:/run/trellis.sock -c 1000 -d 32 -t 30s --runs 5 cycle
  trellis bench run --rate 20000 --hdr-log latency.hlog produce-consume`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := flags.config(args[0])
			if err != nil {
				return err
			}
			if cfg.Addr, err = to.address(); err != nil {
				return err
			}
			if cfg.Token, err = token.readFor(&cfg.Addr); err != nil {
				return err
			}
			cfg.Log = logTo != ""
			line := newProgressLine(os.Stderr)
			cfg.Progress = line.show
			res, err := load.Run(cmd.Context(), cfg)
			line.clear()
			if res == nil {
				return err
			}
			table := io.Discard
			if jsonTo != "-" && csvTo != "-" && logTo != "-" {
				table = visibleWriter{cmd.OutOrStdout()} // there may be words of the server in it
			}
			return errors.Join(
				err,
				res.WriteTable(table),
				writeTo(cmd.OutOrStdout(), jsonTo, res.WriteJSON),
				writeTo(cmd.OutOrStdout(), csvTo, res.WriteCSV),
				writeTo(cmd.OutOrStdout(), logTo, res.WriteLog),
				res.Err(),
			)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	to.register(f)
	token.register(f)
	flags.register(cmd)
	f.IntVar(&flags.cfg.Runs, "runs", 1, "repetitions, each with new connections and the next seed")
	f.IntSliceVar(&flags.cfg.CPUs, "cpus", nil, "processors that the generator is bound to")
	f.StringVar(&jsonTo, "json", "", "write all figures as JSON to this file; - for standard output, instead of the table")
	f.StringVar(&csvTo, "csv", "", "the same as CSV")
	f.StringVar(&logTo, "hdr-log", "", "write a HdrHistogram log with a line for every second and command")
	return cmd
}

// writeTo has write fill the named file, or stdout when the name is "-", or nothing when there is no name.
func writeTo(stdout io.Writer, name string, write func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
