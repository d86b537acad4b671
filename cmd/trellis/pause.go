package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

// pauseForEver is the longest pause that the protocol has.
const pauseForEver = math.MaxUint32

func pauseCommand() *cobra.Command {
	return pausingCommand("paused", &cobra.Command{
		Use:   "pause {TUBE | --all} [SECONDS]",
		Short: "Have a tube hand out no jobs for a while",
		Long: `Have a tube, or every tube that there is now, hand out no jobs for so many seconds, or until trellis resume. Jobs can be put
meanwhile, and those that are reserved are not touched.`,
		Example: `  trellis pause mail 600
  trellis pause --all`,
	}, func(args []string) (uint32, string, error) {
		if len(args) == 0 {
			return pauseForEver, "paused until resumed", nil
		}
		length, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || length == 0 || len(args) > 1 {
			err = fmt.Errorf("%q is not a number of seconds from 1 to %d", strings.Join(args, " "), uint32(pauseForEver))
		}
		return uint32(length), "paused for " + operate.Seconds(length), err
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

// pausingCommand completes a command that pauses tubes. Key counts them in JSON; length makes of the arguments behind the tube
// for how long they are paused, and what is said of them.
func pausingCommand(key string, cmd *cobra.Command, length func(args []string) (seconds uint32, what string, err error)) *cobra.Command {
	var f serverFlags
	var every bool
	cmd.Long += fmt.Sprintf("\n\nJSON is an object with %s, how many tubes were.\n\n%s", key, exitHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tube, rest, err := tubeOrAll(args, every)
		if err != nil {
			return err
		}
		seconds, what, err := length(rest)
		if err != nil {
			return usageError(err)
		}
		return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
			return pauseTubes(ctx, c, p, tube, seconds, key, what)
		})
	}
	cmd.Flags().BoolVar(&every, "all", false, "every tube")
	f.register(cmd)
	f.completeTubes(cmd, 1)
	return cmd
}

// tubeOrAll takes the tube from the arguments, unless it is every one: then it is "".
func tubeOrAll(args []string, every bool) (tube string, rest []string, err error) {
	if every {
		return "", args, nil
	}
	if len(args) == 0 {
		return "", nil, usageError(errors.New("give a tube, or --all"))
	}
	return args[0], args[1:], usageError(client.CheckTube(args[0]))
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
