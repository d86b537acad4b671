package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"trellis/binlog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/offline"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
	"trellis/cmd/internal/control"
	"trellis/cmd/internal/operate"
)

// asUser is in the help of the commands that make directories.
const asUser = "The files belong to whoever runs this, and can be read by nobody else: " +
	"run it as the user that the server will be."

func backupCommand(f *clusterFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR",
		Short: "Write all jobs into a directory that trellisd opens with -b",
		Long: `Write all jobs into a directory, which is made or has to be empty. A standby takes a snapshot and sends it,
or the leader if it is alone; clients are served meanwhile. Everything is in it that was acknowledged before the
command began, if most members answer.

The directory is a binlog: "trellisd -b DIR" opens it, "trellis binlog verify" checks it, and "trellis cluster init"
makes a new cluster of it.` + asUser,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			v, err := c.Look(cmd.Context(), f.nodes, false)
			if err != nil {
				return clusterFailed(cmd.Context(), err)
			}
			from, err := source(v)
			if err != nil {
				return err
			}
			meta, err := fetchBackup(cmd.Context(), c, from.Node.Addr, v.Last(), args[0])
			if err != nil {
				return err
			}
			tell(cmd.OutOrStdout(), "%s of %s, as of entry %d, are in %s; they came from %s",
				operate.Counted(meta.Records, "record"), operate.Size(meta.Bytes), meta.Index, args[0], from.Node)
			return nil
		},
	}
}

// fetchBackup writes a backup of a member into a directory here.
func fetchBackup(ctx context.Context, c *control.Client, addr string, index uint64, dir string) (snapshot.Meta, error) {
	fetching, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	fetched := make(chan error, 1)
	go func() {
		err := c.Backup(fetching, addr, index, w)
		w.CloseWithError(err)
		fetched <- err
	}()
	meta, err := offline.Backup(vfs.OS{}, dir, r)
	if err == nil {
		return meta, clusterFailed(ctx, <-fetched)
	}
	cancel()
	r.CloseWithError(err)
	if ferr := <-fetched; ferr != nil && errors.Is(err, ferr) {
		return meta, clusterFailed(ctx, ferr)
	}
	return meta, ofDirectories(err)
}

// source chooses who is asked for a backup, of the voters that answer: the standby that has
// applied most, or the leader if there is no standby.
func source(v *control.View) (best *control.Status, err error) {
	answering, voters := 0, 0
	for i, m := range v.Members {
		s := v.Answers[i].Status
		if m.Voter {
			voters++
		}
		if s == nil || !m.Voter {
			continue
		}
		answering++
		if best == nil || best.Leads && !s.Leads || best.Leads == s.Leads && best.Applied < s.Applied {
			best = s
		}
	}
	if answering <= voters/2 {
		return nil, refused(fmt.Errorf("%d of %d members that vote answer, so that nobody can tell what was acknowledged; "+
			"of a member that is stopped, trellis cluster recover makes a new cluster", answering, voters))
	}
	return best, nil
}

// ofDirectories gives an error of making a directory its exit status.
func ofDirectories(err error) error {
	for _, e := range []error{
		offline.ErrNotEmpty, offline.ErrNoMember, offline.ErrNoLog, vfs.ErrLocked, binlog.ErrCluster, member.ErrDamaged,
	} {
		if errors.Is(err, e) {
			return refused(err)
		}
	}
	return err
}

func initCommand() *cobra.Command {
	return foundingCommand("init", "the binlog, which is what the server had with -b", offline.Init, &cobra.Command{
		Short: "Make the directory of a new cluster's first member out of a server's binlog",
		Long: fmt.Sprintf(`Make the directory of a new cluster's first member out of a server's binlog or a backup, which
stays as it is. The server must have been stopped. The first member is then started with --node NAME=HOST:PORT and
-b, and leads at once; others are started with empty directories, and added.

The ids of new jobs begin %d behind the last one: after a backup was taken, clients were told others.
`, offline.SkippedIDs) + asUser,
		Example: `  trellis cluster init --from /var/lib/trellis n1=10.0.0.1:11390 /var/lib/trellis-n1
  trellisd -b /var/lib/trellis-n1 --node n1=10.0.0.1:11390 --cluster-cert C --cluster-key K --cluster-ca A`,
	})
}

func recoverCommand() *cobra.Command {
	var skip bool
	found := func(fs vfs.FS, from string, node member.Node, to string) (offline.Made, error) {
		made, err := offline.Recover(fs, from, node, to, skip)
		if damage := (*binlog.DamageError)(nil); errors.As(err, &damage) {
			err = refused(fmt.Errorf("%w; if there is no better member, take what is sound before that: add --skip-damaged",
				err))
		}
		return made, err
	}
	cmd := foundingCommand("recover", "the directory of the member, which is what it had with -b", found, &cobra.Command{
		Short: "Make a new cluster of one out of a member of a cluster that has lost the others",
		Long: fmt.Sprintf(`Make the directory of a new cluster's first member out of that of a member whose cluster has
lost most of its members for good. That member must have been stopped; its directory stays as it is.

This is for the day when there is no other way. What this member had not received is lost, also if it was acknowledged:
take the member that has the most. Nobody can tell any more which of its last entries were committed, so all of them are
taken. The ids of new jobs begin %d behind the last one.

Damage in that directory is an error. With --skip-damaged what is sound before it is taken, and the command says what is
lost: of the log all entries from the damaged one on, of a snapshot all jobs behind the damaged place.

The old cluster is not told. If enough of its members still run or are started again, they are a cluster of their
own, with the same jobs, and clients can reach both: empty their directories, and add them to the new cluster. They
cannot join it as they are.
`, offline.SkippedIDs) + asUser,
		Example: `  trellis cluster recover --from /var/lib/trellis n1=10.0.0.1:11390 /var/lib/trellis-new`,
	})
	cmd.Flags().BoolVar(&skip, "skip-damaged", false, "leave out what is damaged, and what follows it")
	return cmd
}

// foundingCommand completes a command that makes the directory of a new cluster's first member of another one.
func foundingCommand(
	name, from string, found func(fs vfs.FS, from string, node member.Node, to string) (offline.Made, error),
	cmd *cobra.Command,
) *cobra.Command {
	var dir string
	cmd.Use = name + " --from DIR NAME=HOST:PORT DIR"
	cmd.Flags().StringVar(&dir, "from", "", from)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			return errors.New("--from DIR is missing: the directory that it is made of")
		}
		return cobra.ExactArgs(2)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node, err := member.ParseNode(args[0])
		if err != nil {
			return usageError(err)
		}
		made, err := found(vfs.OS{}, dir, node, args[1])
		if err != nil {
			return ofDirectories(err)
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s of %s are in %s; the first member of cluster %s is %s, and new jobs begin at id %d\n",
			operate.Counted(made.Records, "record"), operate.Size(made.Bytes), args[1], made.Cluster, node, made.NextID)
		if name == "recover" {
			if d := made.Damage.Snapshot; d != nil {
				fmt.Fprintf(out, "LOST: the jobs of the snapshot from here on, but for those that later entries name: %v\n", d)
			}
			if d := made.Damage.Log; d != nil {
				fmt.Fprintf(out, "LOST: the entries from %d on: %v\n", made.Lost, d)
			}
			fmt.Fprintf(out, "%d of the log's last entries are not known to have been committed, and were taken\n",
				made.Uncommitted)
			fmt.Fprintf(out,
				"WARNING: members of the old cluster %s must not be started again: clients could reach both clusters, "+
					"and both give out the same jobs. Empty their directories, and add them to the new one.\n", made.Old)
		}
		return nil
	}
	return cmd
}
