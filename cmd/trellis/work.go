package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/worker"
	"trellis/codec"
)

func workCommand() *cobra.Command {
	var f serverFlags
	var tubes []string
	cfg := worker.Config{Stdout: os.Stdout, Stderr: os.Stderr, Log: visibleWriter{os.Stderr}}
	cmd := &cobra.Command{
		Use:   "work {TUBE | --tubes TUBE[=WEIGHT],...} -- COMMAND [ARGUMENT]...",
		Short: "Run a command for every job of a tube, or of several",
		Long: `Reserve jobs of a tube and run a command for each, with the job's body on standard input. No shell is
involved: for one, give sh -c 'COMMAND'.

With --tubes the jobs are those of several tubes, the most urgent of all first. With --mode weighted each tube gets a
share of the jobs that are begun by its weight, and with --mode weighted-fair a share of the time of all workers.
Both need a server that has reserve-mode.

A job is deleted when its command exits with status 0. Otherwise it is released, with a delay that doubles with every
failed attempt, and buried when --attempts of them have failed. Releases, timeouts and burials count as failed attempts,
whoever made them; each kick gives as many attempts again. A command need not read its standard input.

The command is told of its job in TRELLIS_JOB_ID, _TUBE, _PRI, _AGE, _DELAY, _TTR, _RESERVES, _TIMEOUTS, _RELEASES,
_BURIES and _KICKS, as stats-job has them, and in TRELLIS_JOB_ATTEMPT, which is 1 for the first attempt.

Jobs are touched at each half of their time to run, so that a command may take as long as it likes: to bound it, run
it with timeout(1). When a job is deleted meanwhile, its command is stopped with SIGTERM, and after 2 seconds with
SIGKILL.

When the server goes away, the running commands are stopped in the same way, since the server gives their jobs to
others; then the connections are made again, as often as needed. Only the first one has to succeed at once.

SIGTERM or SIGINT ends the work: no job is begun any more, and commands may go on for --grace. Those that still run
then are stopped, and their jobs are ready again, without an attempt having been counted: they are moved to their own
tubes. Where the server has no move-job, or does not grant it, they are ready by the end of the connection, which
counts as an attempt in a tube with the setting disconnects=1. A second signal ends everything at once.

The server gives the jobs of a trellis work that was killed, for want of memory perhaps, to others at once. So that no
command of it, and nothing that such a command has started, goes on beside theirs, each command has a process group
of its own, and a second process, trellis work-minder, kills these groups then. If the second process is killed, trellis
work ends in order, with status 1.

The exit status is 0 when the work was ended by a signal, 1 when the command could not be started, 2 when the command
line is wrong, 3 when the server cannot be reached at first, and 4 when it refuses the tube.`,
		Example: `  trellis work mail -j 4 -- /usr/lib/mail/send
  trellis work --tubes mail=3,reports=1 --mode weighted-fair -j 8 -- /srv/run-job
  trellis work thumbnails --attempts 3 -- timeout 60 sh -c 'convert - -resize 200 "/srv/thumbs/$TRELLIS_JOB_ID.png"'`,
		Args: func(cmd *cobra.Command, args []string) error {
			named := 1
			if len(tubes) > 0 {
				named = 0
			}
			if dash := cmd.ArgsLenAtDash(); len(args) < named+1 || dash >= 0 && dash != named {
				return errors.New("give a tube, or --tubes, and a command behind --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(tubes) == 0 {
				tubes, args = args[:1], args[1:]
			}
			var err error
			cfg.Tubes, err = parseTubes(tubes, cfg.Mode)
			if cfg.Jobs < 1 || cfg.Backoff < 0 || cfg.MaxBackoff < 0 || cfg.Grace < 0 {
				err = errors.Join(err, errors.New("--jobs must be at least 1, and times not negative"))
			}
			if err != nil {
				return usageError(err)
			}
			cfg.Argv = args
			if cfg.Argv[0], err = exec.LookPath(cfg.Argv[0]); err != nil {
				return usageError(err)
			}
			a, token, err := f.server()
			if err != nil {
				return err
			}
			cfg.Addr, cfg.Token, cfg.Timeout = a.String(), token, f.timeout
			cfg.Dial = func(ctx context.Context) (net.Conn, error) {
				nc, err := dialAddress(ctx, &a, f.timeout)
				if err != nil {
					err = &client.ConnError{Addr: cfg.Addr, Err: err}
				}
				return nc, err
			}
			return f.explain(cfg.Addr, work(cmd.Context(), cfg))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&tubes, "tubes", nil,
		"in place of the tube: several, each with a weight from 1 to 9999 if it is to have one")
	flags.StringVar(&cfg.Mode, "mode", "", "how the server is to choose among the tubes: fifo, weighted or weighted-fair")
	flags.IntVarP(&cfg.Jobs, "jobs", "j", 1, "how many commands run at once")
	flags.Uint64Var(&cfg.Attempts, "attempts", 10, "bury a job after so many failed attempts; 0: never")
	flags.DurationVar(&cfg.Backoff, "backoff", time.Second,
		"delay of a job after its first failed attempt, rounded up to whole seconds")
	flags.DurationVar(&cfg.MaxBackoff, "max-backoff", 5*time.Minute, "the longest delay")
	flags.DurationVar(&cfg.Grace, "grace", 30*time.Second, "how long commands may go on after SIGTERM or SIGINT")
	flags.BoolVar(&cfg.Prefix, "prefix", false, "begin each line that a command writes with the id of its job")
	f.registerServer(cmd)
	complete(cmd, "mode", "fifo", "weighted", "weighted-fair")
	f.completeTubes(cmd, 1)
	names := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 || len(tubes) > 0 { // the command and its arguments
			return nil, cobra.ShellCompDirectiveDefault
		}
		return names(cmd, given, begun)
	}
	return cmd
}

// parseTubes reads tubes with weights, which say nothing unless the mode is a weighted one.
func parseTubes(words []string, mode string) (all []worker.Tube, err error) {
	switch mode {
	case "", "fifo", "weighted", "weighted-fair":
	default:
		err = fmt.Errorf("--mode is fifo, weighted or weighted-fair, not %q", mode)
	}
	for _, word := range words {
		name, weight, given := strings.Cut(word, "=")
		err = errors.Join(err, client.CheckTube(name))
		n, parseErr := strconv.ParseUint(weight, 10, 32)
		switch {
		case !given:
		case parseErr != nil || n < 1 || n > codec.MaxWeight:
			err = errors.Join(err, fmt.Errorf("%s: a weight is a number from 1 to %d", word, codec.MaxWeight))
		case mode == "" || mode == "fifo":
			err = errors.Join(err, fmt.Errorf("%s: a weight needs --mode weighted or weighted-fair", word))
		}
		all = append(all, worker.Tube{Name: name, Weight: uint32(n)})
	}
	return all, err
}

// work runs the worker, and beside it the process that kills its commands if it is killed.
func work(ctx context.Context, cfg worker.Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if cfg.Minder, err = worker.StartMinder(exec.Command(self, minderName)); err != nil {
		return err
	}
	done, err := worker.Run(ctx, cfg)
	fmt.Fprintf(cfg.Log, "trellis: %d jobs deleted, %d released, %d buried, %d given up\n",
		done.Deleted, done.Released, done.Buried, done.GivenUp)
	return errors.Join(err, cfg.Minder.Close())
}

const minderName = "work-minder"

// minderCommand is what trellis work starts beside itself.
func minderCommand() *cobra.Command {
	return &cobra.Command{
		Use:    minderName,
		Short:  "Kill the commands of trellis work when it has ended",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { worker.Mind(os.Stdin) },
	}
}
