package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/codec"
)

func settingsCommand() *cobra.Command {
	cmd := serverCommand(&cobra.Command{
		Use:   "settings [GLOB]",
		Short: "List what tubes go by: retries, limits and where failed jobs go",
		Long: `List the tubes that have a setting, or those whose names match GLOB, by name, with the keys that are not the
default. The keys stand in trellisd(8) under set-tube. Settings count for all clients of a tube, and outlive it and
the server.

A stock beanstalkd does not have settings.

JSON has the keys of list-settings.`,
		Example: `  trellis settings
  trellis settings 'mail*' -o json`,
		Args: cobra.MaximumNArgs(1),
	}, 1, listSettings)
	cmd.AddCommand(setTubeCommand(), unsetTubeCommand())
	return cmd
}

func listSettings(ctx context.Context, c *client.Conn, p *printer, args []string) error {
	settings, err := c.Settings(ctx)
	if err != nil {
		return err
	}
	matches, glob := globOf(args)
	settings = slices.DeleteFunc(settings, func(s client.Fields) bool { return !matches(s.Text("tube")) })
	if p.format == "table" {
		for i, s := range settings {
			settings[i] = client.Fields{text("tube", s.Text("tube")), text("setting", setPairs(s))}
		}
	}
	l := p.list(column{head: "TUBE", key: "tube"}, column{head: "SETTING", key: "setting"})
	return l.all(settings, "no tube with a setting matches %q", glob)
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
	return serverCommand(&cobra.Command{
		Use:   "set TUBE KEY=VALUE...",
		Short: "Change keys of a tube's setting",
		Long: `Change keys of a tube's setting, at once and for all of its clients. Other keys stay as they are. The keys
stand in trellisd(8) under set-tube. Times are in seconds, or such as 10s, 5m or 24h.

JSON is an object with tube and setting, the pairs that were given.`,
		Example: "  trellis settings set mail attempts=5 dead=mail.failed retry-min=10s rate=600/1m",
		Args: cobra.MatchAll(cobra.MinimumNArgs(2), func(_ *cobra.Command, args []string) error {
			for i, pair := range args[1:] {
				wire, err := operate.InSeconds(pair)
				if err != nil {
					return err
				}
				if !codec.ValidPair(wire) {
					return fmt.Errorf("%q is not a key of set-tube with a value that it may have", pair)
				}
				args[i+1] = wire
			}
			return checkSetting(args)
		}),
	}, 1, setTube)
}

func unsetTubeCommand() *cobra.Command {
	var pairs []string
	return serverCommand(&cobra.Command{
		Use:   "unset TUBE [KEY...]",
		Short: "Give keys of a tube's setting, or all, the default",
		Long: `Give keys of a tube's setting the default, or all of them.

JSON is an object with tube and setting, the pairs of set-tube.`,
		Example: `  trellis settings unset mail rate burst
  trellis settings unset mail`,
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), func(_ *cobra.Command, args []string) error {
			pairs = []string{args[0], "none"}
			for i, key := range args[1:] {
				pair := key + "="
				if !codec.ValidPair(pair) {
					return fmt.Errorf("%q is not a key of set-tube", key)
				}
				pairs = append(pairs[:i+1], pair)
			}
			return checkSetting(pairs)
		}),
	}, 1, func(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
		return setTube(ctx, c, p, pairs)
	})
}

// checkSetting checks the arguments of set-tube: a tube, and pairs.
func checkSetting(args []string) error {
	if len("set-tube \r\n")+len(strings.Join(args, " ")) > codec.MaxLine {
		return errors.New("so many keys do not fit into a line: give some of them in another command")
	}
	return client.CheckTube(args[0])
}

func setTube(ctx context.Context, c *client.Conn, p *printer, args []string) error {
	tube, setting := args[0], strings.Join(args[1:], " ")
	if err := c.SetTube(ctx, tube, args[1:]...); err != nil {
		return err
	}
	return p.result(fmt.Sprintf("tube %s has %s now", tube, setting),
		client.Fields{text("tube", tube), text("setting", setting)})
}
