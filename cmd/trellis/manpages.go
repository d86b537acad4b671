//go:build manpages

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// A trellis that is built with the tag manpages can write its own manual pages,
// from what --help prints. The one that is given away has no use for that.
func init() {
	buildCommands = append(buildCommands, &cobra.Command{
		Use:    "manpages DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			for _, c := range root.Commands() {
				if c.Name() == "completion" { // five pages about itself
					c.Hidden = true
				}
			}
			// The date comes from SOURCE_DATE_EPOCH.
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "trellis", Manual: "User commands"}, args[0])
		},
	})
}
