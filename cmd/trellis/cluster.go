package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/cmd/internal/control"
	"trellis/cmd/internal/operate"
)

// clusterFailed gives an error of a conversation with members its exit status. Once the command's context has ended,
// it was interrupted, whatever the last answers or their absence look like.
func clusterFailed(ctx context.Context, err error) error {
	remote := (*wire.RemoteError)(nil)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, errors.New("interrupted")}
	case errors.Is(err, control.ErrNoLeader), errors.Is(err, control.ErrNotReady), errors.As(err, &remote):
		return refused(err)
	}
	return &exitError{exitUnreachable, err}
}

type clusterFlags struct {
	nodes         []string
	cert, key, ca string
	timeout       time.Duration
}

const defaultNode = "127.0.0.1:11390"

func (f *clusterFlags) add(cmd *cobra.Command) {
	env := func(name, otherwise string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	p := cmd.PersistentFlags()
	p.StringSliceVar(&f.nodes, "node", strings.Split(env("TRELLIS_CLUSTER_NODE", defaultNode), ","),
		"the peers' address of any member, or of several: host:port,...")
	p.StringVar(&f.cert, "cluster-cert", env("TRELLIS_CLUSTER_CERT", ""),
		"a certificate of the cluster's authorities, a file in PEM")
	p.StringVar(&f.key, "cluster-key", env("TRELLIS_CLUSTER_KEY", ""), "its key, a file in PEM")
	p.StringVar(&f.ca, "cluster-ca", env("TRELLIS_CLUSTER_CA", ""),
		"the authorities that the members' certificates are signed by, a file in PEM")
	p.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long a member may take to answer")
	for _, name := range []string{"node", "cluster-cert", "cluster-key", "cluster-ca"} {
		p.Lookup(name).DefValue = "" // what the environment says is nobody's default
	}
	p.Lookup("node").DefValue = defaultNode
}

// client is what asks the members.
func (f *clusterFlags) client(log io.Writer) (*control.Client, error) {
	for _, addr := range f.nodes {
		if err := member.CheckAddr(addr); err != nil {
			return nil, usageError(fmt.Errorf("--node: %w", err))
		}
	}
	if len(f.nodes) == 0 || f.timeout <= 0 {
		return nil, usageError(errors.New("--node needs an address, and --timeout a time above zero"))
	}
	c := &control.Client{Timeout: f.timeout}
	files := 0
	for _, name := range []string{f.cert, f.key, f.ca} {
		if name != "" {
			files++
		}
	}
	switch {
	case files == 3:
		var err error
		if c.Wire.TLS, err = wire.LoadTLS(f.cert, f.key, f.ca, slog.New(slog.NewTextHandler(log, nil))); err != nil {
			return nil, usageError(err)
		}
	case files != 0:
		return nil, usageError(errors.New("--cluster-cert, --cluster-key and --cluster-ca belong together; give all three"))
	default:
		if err := wire.CheckPlain(f.nodes...); err != nil {
			return nil, usageError(err)
		}
	}
	return c, nil
}

func clusterCommand() *cobra.Command {
	f := new(clusterFlags)
	cmd := commands(&cobra.Command{
		Use:   "cluster",
		Short: "Look after a cluster: who leads, who belongs to it, backup and recovery",
		Long: `Look after a cluster of trellisd servers: who leads, who belongs to it, backup and recovery.

Each command asks one member, or several, for all others; --node names them by the address that trellisd has with
--node. Off loopback all connections use TLS, and the tool needs a certificate: for status any of the cluster's
authorities, for the other commands a member's, or one that trellisd --cluster-admin-name means. These flags have
their values from the environment too: TRELLIS_CLUSTER_NODE, TRELLIS_CLUSTER_CERT, TRELLIS_CLUSTER_KEY,
TRELLIS_CLUSTER_CA.

The exit status is 0 when it is done, 2 when the command line is wrong, 3 when nobody was reached, 4 when it was
refused, 130 after an interrupt, and 1 otherwise.`,
	},
		statusCommand(f), addCommand(f), removeCommand(f), transferCommand(f),
		backupCommand(f), initCommand(), recoverCommand(),
	)
	f.add(cmd)
	for _, c := range append(cmd.Commands(), cmd) {
		mistakesAreUsage(c)
	}
	return cmd
}

func addCommand(f *clusterFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME=HOST:PORT",
		Short: "Make a node a member that votes",
		Long: `Make a node a member that votes. The node runs with an empty directory, --node NAME=HOST:PORT, and a
--cluster that names it and at least one member. It first catches up, which takes as long as it takes to send it all
jobs; the command waits. One that was interrupted may be repeated, and goes on.`,
		Example: "  trellis cluster add n4=10.0.0.4:11390",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := member.ParseNode(args[0])
			if err != nil {
				return usageError(err)
			}
			votes := func(v *control.View, _ *control.Status) bool {
				m, ok := v.Member(n.Name)
				return ok && m.Addr == n.Addr && m.Voter
			}
			c, err := f.client(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if c.Wire.TLS != nil || wire.CheckPlain(n.Addr) == nil {
				c.Await(cmd.Context(), n.Addr)
			}
			v, err := f.lead(cmd, control.Request{Op: control.OpAdd, Node: args[0]}, votes)
			if err != nil {
				return err
			}
			tell(cmd.OutOrStdout(), "%s is a member; the cluster has %s", n, operate.Counted(len(v.Members), "member"))
			return nil
		},
	}
}

func removeCommand(f *clusterFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Make a member none",
		Long: `Make a member none. Its process ends when it hears of it, and cannot come back with its directory. If it leads,
another member takes over first. It is refused if too few of the others answer: nothing could be changed any more.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			gone := func(v *control.View, _ *control.Status) bool {
				_, ok := v.Member(args[0])
				return !ok
			}
			v, err := f.lead(cmd, control.Request{Op: control.OpRemove, Node: args[0]}, gone)
			if err != nil {
				return err
			}
			tell(cmd.OutOrStdout(), "%s is no member any more; the cluster has %s",
				args[0], operate.Counted(len(v.Members), "member"))
			return nil
		},
	}
}

func transferCommand(f *clusterFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "transfer [NAME]",
		Short: "Have another member lead",
		Long: `Have another member lead: the one that is named, or the one that has the most. Nothing that was acknowledged
is lost and no reply is; clients keep their connections and what they have reserved, and wait meanwhile. It is
refused, and nobody notices, while the other member has jobs to load: see "trellis cluster status --wait". Where one
member alone votes, and none is named, that member makes its queue anew of what is on its disk, and leads again.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := control.Request{Op: control.OpTransfer}
			if len(args) > 0 {
				r.To = args[0]
			}
			leads := func(v *control.View, asked *control.Status) bool {
				l := v.Leader
				return l != nil && l.Serves &&
					(l.Node.Name == r.To || r.To == "" && (l.Node.Name != asked.Node.Name || asked.Alone()))
			}
			if _, err := f.lead(cmd, r, leads); err != nil {
				return err
			}
			l, err := f.leader(cmd)
			if err != nil {
				return err
			}
			tell(cmd.OutOrStdout(), "%s leads", l.Node)
			return nil
		},
	}
}

func (f *clusterFlags) lead(
	cmd *cobra.Command, r control.Request, done func(*control.View, *control.Status) bool,
) (*control.View, error) {
	c, err := f.client(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	v, err := c.Lead(cmd.Context(), f.nodes, r, done)
	return v, clusterFailed(cmd.Context(), err)
}

func (f *clusterFlags) leader(cmd *cobra.Command) (*control.Status, error) {
	c, err := f.client(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	s, err := c.Leader(cmd.Context(), f.nodes)
	return s, clusterFailed(cmd.Context(), err)
}
