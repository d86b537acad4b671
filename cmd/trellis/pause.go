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
)

// pauseForEver is the longest pause that the protocol has.
const pauseForEver = math.MaxUint32

func pauseCommand() *cobra.Command {
	var f serverFlags
	var every bool
	cmd := &cobra.Command{
		Use:   "pause {TUBE | --all} [SECONDS]",
		Short: "Have a tube hand out no jobs for a while",
		Long: `Have a tube, or every tube that there is now, hand out no jobs for so many seconds, or until trellis resume. Jobs can be put
meanwhile, and those that are reserved are not touched.

JSON is an object with paused, how many tubes were.

` + exitHelp,
		Example: `  trellis pause mail 600
  trellis pause --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			tube, rest, err := tubeOrAll(args, every)
			if err != nil {
				return err
			}
			length := uint64(pauseForEver)
			if len(rest) > 0 {
				if length, err = strconv.ParseUint(rest[0], 10, 32); err != nil || length == 0 || len(rest) > 1 {
					return usageError(fmt.Errorf("%q is not a number of seconds from 1 to %d", strings.Join(rest, " "), uint32(pauseForEver)))
				}
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				what := "paused until resumed"
				if length != pauseForEver {
					what = "paused for " + seconds(length)
				}
				return pauseTubes(ctx, c, p, tube, uint32(length), "paused", what)
			})
		},
	}
	cmd.Flags().BoolVar(&every, "all", false, "every tube")
	f.register(cmd)
	f.completeTubes(cmd, 1)
	return cmd
}

func resumeCommand() *cobra.Command {
	var f serverFlags
	var every bool
	cmd := &cobra.Command{
		Use:   "resume {TUBE | --all}",
		Short: "End the pause of a tube",
		Long: `Have a tube, or every tube, hand out jobs again.

JSON is an object with resumed, how many tubes were.

` + exitHelp,
		Example: `  trellis resume mail
  trellis resume --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			tube, rest, err := tubeOrAll(args, every)
			if err == nil && len(rest) > 0 {
				err = usageError(errors.New("give one tube only, or --all"))
			}
			if err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				return pauseTubes(ctx, c, p, tube, 0, "resumed", "resumed")
			})
		},
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
			err = noTube(tube)
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
		return gone(err)
	})
	if err != nil {
		return err
	}
	return p.result(fmt.Sprintf("%s %s", count(paused, "tube", "tubes"), what), client.Fields{number(key, paused)})
}
