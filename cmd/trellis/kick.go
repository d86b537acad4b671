package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func kickCommand() *cobra.Command {
	var f serverFlags
	var s selection
	cmd := &cobra.Command{
		Use:   "kick {ID... | --tube TUBE [--state STATE] --count N}",
		Short: "Make buried or delayed jobs ready",
		Long: `Make jobs ready, by their ids or the first ones of a tube. Without --state they are buried ones, or, if the tube has
none of these, delayed ones, as the protocol's kick has it.

JSON is an object with kicked, how many were, and with ids not-found, the ids of the others.

` + exitHelp,
		Example: `  trellis kick 17
  trellis kick --tube mail --count all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.parse(cmd, args, true); err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				o, err := kickJobs(ctx, c, &s)
				return s.report(p, o, err, "kicked", "not there, or neither buried nor delayed")
			})
		},
	}
	s.register(cmd, &f, client.Buried, client.Delayed)
	f.register(cmd)
	return cmd
}

var kicking = action{lines: idLine("kick-job"), want: "KICKED"}

func kickJobs(ctx context.Context, c *client.Conn, s *selection) (o outcome, err error) {
	if s.tube == "" {
		return kicking.onIDs(ctx, c, s.ids)
	}
	stats, err := statsOfTube(ctx, c, s.tube)
	if err != nil {
		return o, err
	}
	buried, delayed := stats.Uint("current-jobs-buried"), stats.Uint("current-jobs-delayed")
	switch {
	case s.of == "" && buried > 0:
		s.of = client.Buried
	case s.of == "" && delayed > 0:
		s.of = client.Delayed
	case s.of == client.Delayed, s.of == client.Buried && buried > 0 && delayed > 0:
		// kick takes buried ones first, also those that have become so since, and delayed ones as soon as there are none
		return kicking.onTube(ctx, c, s)
	}
	// Not one more than there are in that state, as the rest would be jobs in the other one.
	most := min(s.most, buried)
	if s.of == client.Delayed {
		most = min(s.most, delayed)
	}
	o.done, err = inParts(most, func(bound uint32) (uint64, error) { return c.KickTube(ctx, s.tube, bound) })
	return o, gone(err)
}

// gone forgives that a tube has gone while its jobs were worked on.
func gone(err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return err
}
