package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/cmd/internal/quantity"
)

// pauseForEver is the longest pause that the protocol has.
const pauseForEver = math.MaxUint32

func pauseCommand() *cobra.Command {
	return pausingCommand("paused", &cobra.Command{
		Use:   "pause {TUBE | --all} [TIME]",
		Short: "Have a tube hand out no jobs for a while",
		Long: `Have a tube, or every tube that there is now, hand out no jobs for TIME, in seconds or such as 5m, or until
trellis resume. Jobs can be put meanwhile, and those that are reserved are not touched.`,
		Example: `  trellis pause mail 10m
  trellis pause --all`,
	}, func(args []string) (uint32, string, error) {
		if len(args) == 0 {
			return pauseForEver, "paused until resumed", nil
		}
		var length uint32
		text := strings.Join(args, " ")
		err := quantity.SecondsFlag(&length).Set(text)
		if err == nil && length == 0 {
			err = fmt.Errorf("%q is no time: trellis resume ends a pause", text)
		}
		return length, "paused for " + operate.Seconds(uint64(length)), err
	})
}

func resumeCommand() *cobra.Command {
	return pausingCommand("resumed", &cobra.Command{
		Use:   "resume {TUBE | --all}",
		Short: "End the pause of a tube",
		Long:  "Have a tube, or every tube, hand out jobs again.",
		Example: `  trellis resume mail
  trellis resume --all`,
	}, func(args []string) (uint32, string, error) {
		if len(args) > 0 {
			return 0, "", errors.New("give one tube only, or --all")
		}
		return 0, "resumed", nil
	})
}

// pausingCommand completes a command that pauses tubes. Key counts them in JSON; length makes of the arguments behind
// the tube for how long they are paused, and what is said of them.
func pausingCommand(
	key string, cmd *cobra.Command, length func(args []string) (seconds uint32, what string, err error),
) *cobra.Command {
	var every bool
	var tube, what string
	var seconds uint32
	cmd.Long += fmt.Sprintf("\n\nJSON is an object with %s, how many tubes were.", key)
	cmd.Args = func(_ *cobra.Command, args []string) (err error) {
		if !every {
			if len(args) == 0 {
				return errors.New("give a tube, or --all")
			}
			tube, args = args[0], args[1:]
			if err := client.CheckTube(tube); err != nil {
				return err
			}
		}
		seconds, what, err = length(args)
		return err
	}
	cmd.Flags().BoolVar(&every, "all", false, "every tube")
	return serverCommand(cmd, 1, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		return pauseTubes(ctx, c, p, tube, seconds, key, what)
	})
}

// pauseTubes pauses a tube, or all if it is "". Key counts them in JSON, and what tells it to
// people.
func pauseTubes(ctx context.Context, c *client.Conn, p *printer, tube string, length uint32, key, what string) error {
	if tube != "" {
		err := c.Pause(ctx, tube, length)
		if errors.Is(err, client.ErrNotFound) {
			err = &operate.NoTubeError{Tube: tube}
		}
		if err != nil {
			return err
		}
		return p.result("tube "+tube+" "+what, client.Fields{number(key, 1)})
	}
	tubes, err := c.Tubes(ctx)
	if err != nil {
		return err
	}
	paused := 0
	err = c.Pipeline(ctx, len(tubes), func(i int) client.Command {
		return client.Command{Line: fmt.Sprintf("pause-tube %s %d", tubes[i], length)}
	}, func(_ int, r client.Reply) error {
		err := r.Check("pause-tube", "PAUSED")
		if err == nil {
			paused++
		}
		return operate.Gone(err)
	})
	if err != nil {
		return err
	}
	return p.result(operate.Counted(paused, "tube")+" "+what, client.Fields{number(key, paused)})
}

func drainCommand() *cobra.Command {
	return drainingCommand("drain", "Refuse new jobs", `The server answers every put with DRAINING, until trellis undrain
or its end. All else goes on.

JSON is an object with draining, true. A stock beanstalkd does not have the command, and drains on SIGUSR1.`, true)
}

func undrainCommand() *cobra.Command {
	return drainingCommand("undrain", "Accept new jobs again", `The server accepts new jobs again, also if it drains
because of SIGUSR1.

JSON is an object with draining, false. A stock beanstalkd cannot do that.`, false)
}

func drainingCommand(name, short, long string, on bool) *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: "  trellis " + name,
		Args:    cobra.NoArgs,
	}, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		do, sentence, value := c.Undrain, "it takes new jobs", "false"
		if on {
			do, sentence, value = c.Drain, "it drains: it takes no new jobs", "true"
		}
		if err := do(ctx); err != nil {
			return err
		}
		return p.result(sentence, client.Fields{{Key: "draining", Value: client.Value{Kind: client.Bool, Text: value}}})
	})
}

func reloadCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "reload",
		Short: "Load the server's files again",
		Long: `Load the server's files again at once, certificates and the authentication file, and say what came of it.
What cannot be loaded changes nothing, and the exit status is 1 then. Of a cluster, only the leader can be
asked; SIGHUP does the same on each machine.

JSON is a list of objects with name, files, result, loaded or failed, and error. A server with an authentication file
wants a token with the right admin. A stock beanstalkd does not have the command.`,
		Example: "  trellis reload",
		Args:    cobra.NoArgs,
	}, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		loaded, err := c.Reload(ctx)
		if err != nil {
			return err
		}
		l := p.list(column{head: "NAME", key: "name"}, column{head: "RESULT", key: "result"},
			column{head: "FILES", key: "files"}, column{head: "ERROR", key: "error"})
		if err := l.all(loaded, "the server has no files that it could load again"); err != nil {
			return err
		}
		failed := slices.DeleteFunc(loaded, func(files client.Fields) bool { return files.Text("result") == "loaded" })
		if len(failed) > 0 {
			return nothingFound(fmt.Errorf("%d of %d could not be loaded; what was loaded before counts", len(failed), l.n))
		}
		return nil
	})
}

func deadLettersCommand() *cobra.Command {
	cmd := commands(&cobra.Command{
		Use:   "dlq",
		Short: "Say where jobs go that fail again and again",
		Long: `Say where jobs go that fail again and again: a job whose reservations have ended so many times by a release
or a time-out is buried in another tube, its dead-letter queue. A kick there gives it its attempts again.

A stock beanstalkd does not have dead-letter queues.

` + exitHelp,
	}, listDeadLettersCommand(), setDeadLettersCommand(), unsetDeadLettersCommand())
	mistakesAreUsage(cmd)
	return cmd
}

func listDeadLettersCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "list",
		Short: "List the tubes that have a dead-letter queue",
		Long: `List the tubes that have a dead-letter queue, by name.

JSON has the keys of list-dlq.`,
		Example: "  trellis dlq list",
		Args:    cobra.NoArgs,
	}, 0, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		settings, err := c.DeadLetters(ctx)
		if err != nil {
			return err
		}
		l := p.list(column{head: "TUBE", key: "tube"}, counted("ATTEMPTS", "max-attempts"),
			column{head: "DEAD TUBE", key: "dead-tube"})
		return l.all(settings, "no tube has a dead-letter queue")
	})
}

func setDeadLettersCommand() *cobra.Command {
	var attempts uint32
	return serverCommand(&cobra.Command{
		Use:   "set TUBE ATTEMPTS DEAD-TUBE",
		Short: "Give a tube a dead-letter queue",
		Long: `Have jobs of TUBE that have failed ATTEMPTS times buried in DEAD-TUBE, which may be TUBE itself. It counts
for jobs that are there already, from their next failure on.

JSON is an object with the keys of list-dlq.`,
		Example: "  trellis dlq set mail 5 mail.failed",
		Args: cobra.MatchAll(cobra.ExactArgs(3), func(_ *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || n == 0 {
				return fmt.Errorf("%q is not a number of attempts", args[1])
			}
			attempts = uint32(n)
			return cmp.Or(client.CheckTube(args[0]), client.CheckTube(args[2]))
		}),
	}, 3, func(ctx context.Context, c *client.Conn, p *printer, args []string) error {
		tube, dead := args[0], args[2]
		if err := c.SetDeadLetters(ctx, tube, attempts, dead); err != nil {
			return err
		}
		return p.result(fmt.Sprintf("jobs of tube %s go to %s after %s", tube, dead, operate.Counted(attempts, "attempt")),
			client.Fields{text("tube", tube), number("max-attempts", attempts), text("dead-tube", dead)})
	})
}

func unsetDeadLettersCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "unset TUBE",
		Short: "Let jobs of a tube fail as often as they do",
		Long: `Take a tube's dead-letter queue away. Jobs that are there stay there.

JSON is an object with tube and max-attempts, 0.`,
		Example: "  trellis dlq unset mail",
		Args: cobra.MatchAll(cobra.ExactArgs(1),
			func(_ *cobra.Command, args []string) error { return client.CheckTube(args[0]) }),
	}, 1, func(ctx context.Context, c *client.Conn, p *printer, args []string) error {
		tube := args[0]
		if err := c.SetDeadLetters(ctx, tube, 0, tube); err != nil {
			return err
		}
		return p.result(fmt.Sprintf("jobs of tube %s stay there", tube),
			client.Fields{text("tube", tube), number("max-attempts", 0)})
	})
}
