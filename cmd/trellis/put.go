package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/quantity"
	"trellis/cmd/trellis/internal/jobfile"
	"trellis/cmd/trellis/internal/producer"
)

type jobFlags struct{ pri, delay, ttr uint32 }

func (j *jobFlags) register(f *pflag.FlagSet, when string) {
	f.Uint32VarP(&j.pri, "pri", "p", 1024, "priority"+when+"; 0 is the most urgent")
	j.ttr = 60
	f.VarP(quantity.SecondsFlag(&j.delay), "delay", "d", "time until the job is ready, in seconds or such as 5m"+when)
	f.Var(quantity.SecondsFlag(&j.ttr), "ttr", "time to run, the same"+when)
}

func putCommand() *cobra.Command {
	var f serverFlags
	var j jobFlags
	var p put
	var tags tagFlags
	cmd := &cobra.Command{
		Use:   "put [BODY | - | --lines | --ndjson]",
		Short: "Put jobs into a tube",
		Long: `Put a job with this body, or with that from standard input; or many jobs from standard input:

  --lines   each line is a body, without its line feed; an empty line is an empty body
  --ndjson  each line is a JSON object with the body of a job in "body" or, if it is not UTF-8, in "body-base64", and
            what else is to be said of it: "tube", "pri", "delay", "ttr", "key" with "key-seconds" (see --unique). The
            lines that trellis export writes will do; their other keys have no effect here (see trellis import).

Many jobs are sent without waiting for each reply, and need little memory, however many there are. A line that is no
job, or larger than the server's max-job-size, is told on standard error and left out. When the server refuses a job
for another reason, nothing more is sent; each line that was refused is told.

--unique and "key" make a job unique in its tube: as long as a job with the same key lives, and for that time
after its end, no other is put. The other options that name a group or a key, and --expire, are for each job of the
input. A job with --after waits, delayed, until the jobs of that group are gone; put those first. A job with --fair
shares its tube with the jobs of other keys: the key with the fewest jobs at work is next. trellisd(8) has the
details in its section EXTENSIONS.

All these need extensions of Trellis: a server without them, such as a stock beanstalkd, is not sent such jobs. A
line of the protocol has 224 bytes: long names do not all fit into one put.

` + exitHelp,
		Example: `  trellis put -t mail '{"to": "you@example.org"}'
  trellis put -t mail --delay 1h - <body
  cut -d, -f1 users.csv | trellis put -t reminders --lines --group reminders.may
  trellis put -t reports --after reminders.may 'all reminders of May are sent'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			stdin := len(args) == 0 || args[0] == "-"
			p.job.Pri, p.job.Delay, p.job.TTR = j.pri, j.delay, j.ttr
			var tagErr error
			p.job.Tags, tagErr = tags.tags(cmd.Flags())
			err := errors.Join(client.CheckTube(p.job.Tube), tagErr)
			if err == nil {
				err = p.job.Check() // before its body is known, and has to be read
			}
			switch {
			case err != nil:
			case p.lines && p.ndjson:
				err = errors.New("give either --lines or --ndjson")
			case (p.lines || p.ndjson) && !stdin:
				err = errors.New("--lines and --ndjson read standard input, and take no body")
			case (p.lines || p.ndjson) && tags.unique != "":
				err = errors.New(`--unique is for one job; with --ndjson each may have its own "key"`)
			}
			if err != nil {
				return usageError(err)
			}
			p.in, p.errs = cmd.InOrStdin(), cmd.ErrOrStderr()
			if !stdin {
				p.in = strings.NewReader(args[0])
			}
			return f.run(cmd, p.run)
		},
	}
	cmd.Flags().StringVarP(&p.job.Tube, "tube", "t", "default", "the tube")
	j.register(cmd.Flags(), "")
	tags.register(cmd.Flags())
	cmd.Flags().BoolVar(&p.lines, "lines", false, "a job for each line of standard input")
	cmd.Flags().BoolVar(&p.ndjson, "ndjson", false, "a job for each JSON object of standard input")
	f.register(cmd)
	f.completeTubes(cmd, 0, "tube")
	return cmd
}

// tagFlags are the options of a put that are tags on its line.
type tagFlags struct {
	unique, group, after, settled, fair string
	expire                              uint32
}

func (t *tagFlags) register(f *pflag.FlagSet) {
	f.StringVar(&t.unique, "unique", "", "KEY[:TIME] that no other job of the tube may have")
	f.StringVar(&t.group, "group", "", "the job is one of this GROUP, for which others may wait")
	f.StringVar(&t.after, "after", "", "the job waits until those of this GROUP are gone")
	f.StringVar(&t.settled, "after-settled", "", "the job waits until those of this GROUP are gone or buried")
	f.StringVar(&t.fair, "fair", "", "the job shares its tube as those of this KEY do")
	f.Var(quantity.SecondsFlag(&t.expire), "expire",
		"time after which nobody starts the job any more; 0 is never, whatever the tube's setting")
}

// tags are the tags of the options that were given, an empty one too: a variable may have been forgotten.
func (t *tagFlags) tags(f *pflag.FlagSet) (tags []string, err error) {
	unique, keep, keeps := strings.Cut(t.unique, ":")
	var seconds uint32
	if keeps {
		if wrong := quantity.SecondsFlag(&seconds).Set(keep); wrong != nil {
			return nil, fmt.Errorf("--unique: %w", wrong)
		}
		keep = fmt.Sprint(":", seconds)
	}
	for _, o := range []struct{ option, kind, key, more string }{
		{"unique", "idp", unique, keep},
		{"group", "grp", t.group, ""},
		{"after", "aft", t.after, ""},
		{"after-settled", "aft", t.settled, ":settled"},
		{"fair", "fair", t.fair, ""},
	} {
		if !f.Changed(o.option) {
			continue
		}
		tag, wrong := producer.KeyTag(o.kind, o.key)
		tags, err = append(tags, tag+o.more), errors.Join(err, wrong)
	}
	if f.Changed("expire") {
		tags = append(tags, fmt.Sprintf("exp:%d", t.expire))
	}
	switch {
	case err != nil:
	case t.after != "" && t.settled != "":
		err = errors.New("give either --after or --after-settled")
	case t.group != "" && t.group == t.after+t.settled:
		err = errors.New("a job cannot wait for its own group")
	}
	return tags, err
}

type put struct {
	job           producer.Job // for what the input does not say
	lines, ndjson bool
	in            io.Reader
	errs          io.Writer
}

func (p *put) run(ctx context.Context, c *client.Conn, out *printer) error {
	most, err := maxJobSize(ctx, c)
	if err != nil {
		return err
	}
	in := interruptible(ctx, p.in)
	switch {
	case p.lines:
		return feed(ctx, c, out, p.errs, most, producer.NewLines(in, p.job, most))
	case p.ndjson:
		convert := func(j *jobfile.Job) (producer.Job, error) { return producer.Put(j, p.job) }
		return feed(ctx, c, out, p.errs, most, producer.NewFile(in, most, convert))
	}
	body, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if uint64(len(body)) > most {
		return refused(producer.TooLarge(most))
	}
	return p.one(ctx, c, out, body)
}

func (p *put) one(ctx context.Context, c *client.Conn, out *printer, body []byte) error {
	job := p.job.NewJob
	job.Body = body
	if err := job.Check(); err != nil {
		return refused(err)
	}
	if err := c.Use(ctx, p.job.Tube); err != nil {
		return err
	}
	inserted, err := c.Put(ctx, &job)
	if err != nil {
		return err
	}
	fields := client.Fields{number("id", inserted.ID), text("tube", p.job.Tube)}
	sentence := fmt.Sprintf("job %d put into tube %s", inserted.ID, p.job.Tube)
	switch {
	case inserted.Duplicate != "":
		state := strings.ToLower(inserted.Duplicate)
		fields = append(fields, text("duplicate", state))
		sentence = fmt.Sprintf("job %d of tube %s has the same key already, and is %s: nothing was put",
			inserted.ID, p.job.Tube, state)
	case inserted.Buried:
		fields = append(fields, text("state", string(client.Buried)))
		sentence += ", where it is buried: the server had no memory to queue it"
	}
	return out.result(sentence, fields)
}

// maxUntold is what is taken for the max-job-size of a server that does not tell.
const maxUntold = 16 << 20

func maxJobSize(ctx context.Context, c *client.Conn) (uint64, error) {
	caps, err := c.Capabilities(ctx)
	if err != nil || caps.MaxJobSize > 0 {
		return min(caps.MaxJobSize, client.DefaultMaxBody), err
	}
	stats, err := c.Stats(ctx)
	if no := (*client.RefusedError)(nil); err != nil && !errors.As(err, &no) {
		return 0, err
	}
	if n := stats.Uint("max-job-size"); n > 0 {
		return min(n, client.DefaultMaxBody), nil
	}
	return maxUntold, nil
}

func importJobsCommand() *cobra.Command {
	var f serverFlags
	var j jobFlags
	var tube string
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Put exported jobs back, each in its state",
		Long: `Put the jobs that trellis export has written, from a file or standard input.

Each job goes into its tube, or that of --tube, with its body, priority and time to run. A ready or reserved job is
ready. A delayed job has the delay that was left. A buried job is buried: it is put with a delay of an hour, reserved
by its id, and buried, so that an interrupted import, which says so, leaves it to become ready after that hour.

Jobs get new ids and begin a new age, and their counters (reserves, timeouts, releases, buries, kicks) begin at 0.
Keys and limits that were given to a job with put are not in the file. Jobs keep the order that they have in it among
those with the same priority.

Importing the same file twice puts its jobs twice. Lines that cannot be put are told, as by trellis put.

` + exitHelp,
		Example: `  trellis export mail | trellis -a other:11300 import
  trellis import --tube mail.old mail.ndjson`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tube != "" {
				if err := client.CheckTube(tube); err != nil {
					return usageError(err)
				}
			}
			in := cmd.InOrStdin()
			if len(args) == 1 && args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return usageError(err)
				}
				defer file.Close()
				in = file
			}
			otherwise := producer.Job{NewJob: client.NewJob{Pri: j.pri, Delay: j.delay, TTR: j.ttr}}
			return f.run(cmd, func(ctx context.Context, c *client.Conn, p *printer) error {
				return importJobs(ctx, c, p, cmd.ErrOrStderr(), in, tube, otherwise)
			})
		},
	}
	cmd.Flags().StringVarP(&tube, "tube", "t", "", "the tube, in place of those in the file")
	j.register(cmd.Flags(), " of jobs of which the file does not tell")
	f.register(cmd)
	f.completeTubes(cmd, 0, "tube")
	cmd.ValidArgsFunction = nil // a file
	return cmd
}

func importJobs(
	ctx context.Context, c *client.Conn, p *printer, errs io.Writer, in io.Reader, tube string, otherwise producer.Job,
) error {
	most, err := maxJobSize(ctx, c)
	if err != nil {
		return err
	}
	return feed(ctx, c, p, errs, most,
		producer.NewFile(interruptible(ctx, in), most, func(j *jobfile.Job) (producer.Job, error) {
			if tube != "" {
				j.Tube = tube
			}
			if j.Tube == "" {
				return producer.Job{}, fmt.Errorf("there is no tube in it: give --tube")
			}
			return producer.Restore(j, otherwise)
		}))
}
