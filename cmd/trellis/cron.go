package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/cron"
)

func cronCommand() *cobra.Command {
	var f serverFlags
	var check bool
	cmd := &cobra.Command{
		Use:   "cron FILE",
		Short: "Put jobs at the times that a file says",
		Long: `Put jobs at the times that a file says, until SIGTERM or SIGINT. Nothing is kept: the key of each job names
its entry and its time, so that the server puts one job for a time (see trellis put --unique). Run it on two hosts,
with the same file, and one may go. At its start, and when the server is there again, it puts what fell into the last
hour once more; the server knows what was put. It knows that for two hours after the job's end. Only if the job was
moved to another tube, to that for dead letters too, or its tube was flushed, may the job of a time be put twice.

An entry is a line of the file:

  MINUTE HOUR DAY MONTH WEEKDAY TUBE [OPTION...] [BODY]

The fields are those of crontab(5): *, numbers, ranges, lists, steps behind * or a range, and names of months and
days of the week. Where neither DAY nor WEEKDAY begins with *, a day that fits one of them fits. The options are
--pri, --delay and --ttr of trellis put, and --name: the key of a job begins with it, in place of a hash of the line,
so that a line that is changed and read anew within the hour does not put jobs again. -- ends the options. The body
is the rest of the line. Empty lines, and those that begin with #, are passed over.

A line TZ=ZONE, such as TZ=Europe/Berlin, is for the entries below it. Without one they are in UTC. When the clocks
there change, a time that is skipped fires at the first moment after, and a time that comes twice fires the first
time. In an entry whose HOUR begins with * or has a step, real time counts: 0 * * * * fires each hour.

With --check nothing is put: mistakes are told, each with file and line, or the next time of each entry.

The exit status is 0 when it was ended by a signal, 1 when something else is wrong, 2 when the command line or the
file is, 3 when the server cannot be reached at first, and 4 when it lacks idp, or does not let this client put into
a tube.`,
		Example: `  trellis cron --check /etc/trellis/crontab
  trellis -a queue.example.org cron /etc/trellis/crontab`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			errs := visibleWriter{cmd.ErrOrStderr()}
			entries, err := readCron(args[0], errs)
			if err != nil {
				return usageError(err)
			}
			if check {
				return printNext(cmd.OutOrStdout(), entries, time.Now())
			}
			a, token, err := f.server()
			if err != nil {
				return err
			}
			return f.explain(a.String(), cron.Run(cmd.Context(), cron.Config{
				Entries: entries,
				Dial:    func(ctx context.Context) (*client.Conn, error) { return f.dialAddr(ctx, &a, token) },
				Clock:   cron.SystemClock{},
				Log:     errs,
			}))
		},
	}
	cmd.Flags().BoolVar(&check, "check", false,
		"read the file, and say what is wrong with it, or when its entries are next")
	f.registerServer(cmd)
	return cmd
}

// readCron reads a file, and tells its mistakes.
func readCron(name string, errs io.Writer) ([]cron.Entry, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	entries, mistakes := cron.Read(file, name)
	for _, err := range mistakes {
		fmt.Fprintf(errs, "trellis: %v\n", err)
	}
	if n := len(mistakes); n > 0 {
		return nil, fmt.Errorf("%s: %d mistakes, nothing is put", name, n)
	}
	return entries, nil
}

// printNext says when entries fire next.
func printNext(w io.Writer, entries []cron.Entry, now time.Time) error {
	var failed error
	for i := range entries {
		e := &entries[i]
		_, err := fmt.Fprintf(w, "line %d: tube %s, next at %s\n", e.Line, e.Tube, e.Next(now).Format(time.RFC3339))
		failed = errors.Join(failed, err)
	}
	return failed
}
