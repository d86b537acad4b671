package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"

	"trellis/binlog"
	"trellis/binlog/convert"
	"trellis/binlog/inspect"
	"trellis/binlog/replica/offline"
	"trellis/binlog/vfs"
)

func binlogCommand() *cobra.Command {
	return commands(&cobra.Command{
		Use:   "binlog",
		Short: "Check a server's binlog, show what is in it, take it over from beanstalkd or back",
		Long: `Check a server's binlog, show what is in it, take over one of beanstalkd's, or write it for beanstalkd.

DIR is what the server is given with -b. Only import changes what is in it.`,
	}, verifyCommand(), dumpCommand(), importCommand(), exportCommand())
}

func verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Read all of a binlog and tell whether a server would start on it",
		Long: `Read all of a binlog, check every record, and tell whether a server would start on it. A server may be
running meanwhile: what looks wrong is read again. DIR may also hold the log of a beanstalkd, which a server would
import, or that of a member of a cluster that has bodies on disk only (trellisd --body-memory): then the snapshot from
which it would start and its body files are checked, and that each body is where the snapshot says, but not the entries
that follow the snapshot.

The exit status is 0 if a server would start, 2 if the log is damaged, and 1 if it could not be checked.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cure := "to start with what is sound, and keep the files aside: trellisd --skip-damaged"
			err := buffered(cmd.OutOrStdout(), func(w io.Writer) error {
				if theirs, err := convert.Verify(w, vfs.OS{}, args[0]); theirs || err != nil {
					return err
				}
				member, err := offline.Verify(w, vfs.OS{}, args[0])
				if member {
					cure = "if the other members are well, remove this one, empty its directory, and add it again"
				}
				if member || err != nil {
					return err
				}
				return inspect.Verify(w, vfs.OS{}, args[0])
			})
			if damage := (*binlog.DamageError)(nil); errors.As(err, &damage) {
				return fmt.Errorf("%w; to see what is around it: trellis binlog dump %s; %s", err, args[0], cure)
			}
			return err
		},
	}
}

func dumpCommand() *cobra.Command {
	var bodies bool
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Write every record of a binlog as a line of text",
		Long: `Write every record of a binlog as a line of text, in the order of the log: file, offset, kind and fields.
A place that holds no record where one should be is a line with BAD. A server may be running meanwhile.

Of a member of a cluster that has bodies on disk only (trellisd --body-memory), the current snapshot and all body files
are written. What the snapshot's file "jobs" says comes first: each job, and file and offset of its body.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return buffered(cmd.OutOrStdout(), func(w io.Writer) error {
				if member, err := offline.Dump(w, vfs.OS{}, args[0], bodies); member || err != nil {
					return err
				}
				return inspect.Dump(w, vfs.OS{}, args[0], bodies)
			})
		},
	}
	cmd.Flags().BoolVar(&bodies, "bodies", false, "write the jobs' bodies too, quoted")
	return cmd
}

func importCommand() *cobra.Command {
	var skip bool
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Take over the log of a beanstalkd, as a server does when it starts",
		Long: `Take over the log of a beanstalkd, as a server does when it is started with -b DIR. Beanstalkd's files are
kept in a sub-directory. Beanstalkd must have been stopped. The new files belong to whoever runs this, and can be
read by nobody else: run it as the user that the server will be.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			trouble := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			l, err := binlog.Open(args[0], binlog.Options{SkipDamaged: skip, Log: trouble})
			switch {
			case errors.Is(err, binlog.ErrLocked):
				return fmt.Errorf("%w; stop it first", err)
			case err != nil:
				return err
			}
			i := l.Recovery().Imported
			if err := l.Close(); err != nil {
				return err
			}
			if i == nil {
				return fmt.Errorf("%s has no log of beanstalkd's", args[0])
			}
			fmt.Fprintf(cmd.OutOrStdout(),
				"%d ready, %d delayed and %d buried jobs with %d bytes in %d tubes, last id %d; beanstalkd's files are in %s now\n",
				i.Ready, i.Delayed, i.Buried, i.Bytes, i.Tubes, i.LastID, i.Aside)
			return nil
		},
	}
	cmd.Flags().BoolVar(&skip, "skip-damaged", false, "leave out what is damaged")
	return cmd
}

func exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export DIR TO",
		Short: "Write the jobs of a binlog as a log that beanstalkd reads",
		Long: `Write the jobs of a binlog as a log of beanstalkd's, version 7, into the directory TO. That must exist, and
have no such log yet. The server must have been stopped. What that format cannot hold is left out, and how much it is
said on standard error: settings of tubes, attempts of jobs that were kicked, and keys that jobs were put with (idp,
con).`,
		Example: `  mkdir /var/lib/beanstalkd && trellis binlog export /var/lib/trellis /var/lib/beanstalkd
  beanstalkd -b /var/lib/beanstalkd`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := convert.Export(vfs.OS{}, args[0], args[1])
			switch {
			case errors.Is(err, binlog.ErrLocked):
				return fmt.Errorf("%w; stop it first", err)
			case errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("%w; both directories must exist", err)
			case err != nil:
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%d jobs in %d files, last id %d\n", x.Jobs, x.Files, x.LastID)
			if x.Settings > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d settings of tubes are left out: beanstalkd has none\n", x.Settings)
			}
			if x.Attempts > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"the attempts of %d jobs since they were kicked are left out: beanstalkd does not count them\n", x.Attempts)
			}
			if x.Unique+x.Limited+x.Tombstones > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"beanstalkd's format cannot hold the unique keys of %d jobs, the limits of %d jobs, "+
						"and %d keys of deleted jobs: they are left out\n", x.Unique, x.Limited, x.Tombstones)
			}
			if x.Terms > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "the fair keys, groups and expiries of %d jobs are left out: beanstalkd has none\n",
					x.Terms)
			}
			if x.Held > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d jobs that wait for a group are buried: kick them when it is their turn\n",
					x.Held)
			}
			if x.MaxJobSize > beanstalkdMaxJobSize {
				fmt.Fprintf(out, "beanstalkd must be started with -z %d or more: with less it throws jobs away\n", x.MaxJobSize)
			}
			return nil
		},
	}
}

// beanstalkdMaxJobSize is the largest job of a beanstalkd without -z.
const beanstalkdMaxJobSize = 65535

// buffered has write fill w in large pieces.
func buffered(w io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(w, 64<<10)
	return errors.Join(write(b), b.Flush())
}
