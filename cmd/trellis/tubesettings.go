package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/codec"
)

func settingsCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "settings [GLOB]",
		Short: "List what tubes go by: retries, limits and where failed jobs go",
		Long: `List the tubes that have a setting, or those whose names match GLOB, by name, with the keys that are not the default. The keys
stand in trellisd(8) under set-tube. Settings count for all clients of a tube, and outlive it and the server.

A stock beanstalkd does not have settings.

JSON has the keys of list-settings.

` + exitHelp,
		Example: `  trellis settings
  trellis settings 'mail*' -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			glob := "*"
			if len(args) > 0 {
				glob = args[0]
			}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error { return listSettings(ctx, c, p, glob) })
		},
	}
	f.register(cmd)
	f.completeTubes(cmd, 1)
	mistakesAreUsage(cmd)
	cmd.AddCommand(setTubeCommand(), unsetTubeCommand())
	return cmd
}

func listSettings(ctx context.Context, c *client.Conn, p *printer, glob string) error {
	settings, err := c.Settings(ctx)
	if err != nil {
		return err
	}
	l := p.list(column{head: "TUBE", key: "tube"}, column{head: "SETTING", key: "setting"})
	for _, s := range settings {
		if len(matching([]string{s.Text("tube")}, glob)) == 0 {
			continue
		}
		if p.format == "table" {
			s = client.Fields{text("tube", s.Text("tube")), text("setting", setPairs(s))}
		}
		if err := l.add(s); err != nil {
			return err
		}
	}
	l.end()
	if l.n == 0 {
		return nothingFound(fmt.Errorf("no tube with a setting matches %q", glob))
	}
	return nil
}

// setPairs are the pairs of a setting that are not the default.
func setPairs(s client.Fields) string {
	var pairs []string
	for _, k := range operate.SettingsOf(s) {
		if k.Value != "" {
			pairs = append(pairs, k.Key+"="+k.Value)
		}
	}
	return strings.Join(pairs, " ")
}

func setTubeCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "set TUBE KEY=VALUE...",
		Short: "Change keys of a tube's setting",
		Long: `Change keys of a tube's setting, at once and for all of its clients. Other keys stay as they are. The keys stand in trellisd(8)
under set-tube.

JSON is an object with tube and setting, the pairs that were given.

` + exitHelp,
		Example: "  trellis settings set mail attempts=5 dead=mail.failed retry-min=10",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, pair := range args[1:] {
				if !codec.ValidPair(pair) {
					return usageError(fmt.Errorf("%q is not a key of set-tube with a value that it may have", pair))
				}
			}
			return setTube(cmd, &f, args[0], args[1:]...)
		},
	}
	f.register(cmd)
	f.completeTubes(cmd, 1)
	return cmd
}

func unsetTubeCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "unset TUBE [KEY...]",
		Short: "Give keys of a tube's setting, or all, the default",
		Long: `Give keys of a tube's setting the default, or all of them.

JSON is an object with tube and setting, the pairs of set-tube.

` + exitHelp,
		Example: `  trellis settings unset mail rate burst
  trellis settings unset mail`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pairs := []string{"none"}
			for i, key := range args[1:] {
				pair := key + "="
				if !codec.ValidPair(pair) {
					return usageError(fmt.Errorf("%q is not a key of set-tube", key))
				}
				pairs = append(pairs[:i], pair)
			}
			return setTube(cmd, &f, args[0], pairs...)
		},
	}
	f.register(cmd)
	f.completeTubes(cmd, 1)
	return cmd
}

func setTube(cmd *cobra.Command, f *serverFlags, tube string, pairs ...string) error {
	if err := client.CheckTube(tube); err != nil {
		return usageError(err)
	}
	setting := strings.Join(pairs, " ")
	if len("set-tube  \r\n")+len(tube)+len(setting) > codec.MaxLine {
		return usageError(errors.New("so many keys do not fit into a line: give some of them in another command"))
	}
	return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
		if err := c.SetTube(ctx, tube, pairs...); err != nil {
			return err
		}
		return p.result(fmt.Sprintf("tube %s has %s now", tube, setting), client.Fields{text("tube", tube), text("setting", setting)})
	})
}
