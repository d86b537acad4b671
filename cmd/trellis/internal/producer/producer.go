package producer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"trellis/cmd/internal/client"
)

const (
	// A batch ends when it has so many jobs, or bodies of so many bytes.
	batchJobs  = 1000
	batchBytes = 1 << 20

	// Jobs under way at most, and bytes of their bodies. The replies must fit into the buffers of the two kernels, or both
	// sides could wait for each other.
	windowJobs  = 256
	windowBytes = 256 << 10

	// buryDelay keeps a job that is to be buried from workers, in seconds.
	buryDelay = 3600
)

// A Job is a job to be put.
type Job struct {
	client.NewJob
	Tube string
	Bury bool // leave it buried
	Line int  // where it comes from
}

// A Source is where jobs come from. Its methods are called from the goroutine of Run.
type Source interface {
	// Next returns the next job, whose body is not changed after that. It returns io.EOF at the end, and a
	// *Refusal for one that cannot be put; other errors end the producer.
	Next() (Job, error)
	// Waiting reports whether Next may have to wait for the next job.
	Waiting() bool
}

// A Refusal tells why a job was not put.
type Refusal struct {
	Line int
	Err  error
}

func (r *Refusal) Error() string { return fmt.Sprintf("line %d: %v", r.Line, r.Err) }
func (r *Refusal) Unwrap() error { return r.Err }

// Summary is what has become of the jobs so far.
type Summary struct {
	Put        uint64 // new jobs
	Buried     uint64 // of them, those that the server has buried, since it had no memory to queue them
	Duplicates uint64 // jobs that were there already, with the same key
	Refused    uint64
	Line       int // of the last job that was sent

	// Jobs that were sent and whose replies have not come, and the line of the first one.
	Unknown     uint64
	UnknownFrom int

	Unburied uint64 // jobs that were put, and may not have been buried as they should be
}

// A Producer puts jobs. Its functions are called from the goroutine of Run, and may be nil.
type Producer struct {
	Conn     *client.Conn
	MaxBody  uint64 // bytes; a larger job is refused without being sent
	Refused  func(*Refusal)
	Progress func(Summary) // after each batch

	sum Summary
}

// Run puts the jobs of a source, until it ends, the server takes no more, or something fails. Refusals of single
// jobs are no errors.
func (p *Producer) Run(ctx context.Context, source Source) (Summary, error) {
	for {
		batch, next := p.collect(ctx, source)
		if err := p.put(ctx, batch); err != nil {
			return p.sum, err
		}
		if p.Progress != nil {
			p.Progress(p.sum)
		}
		if errors.Is(next, io.EOF) {
			return p.sum, nil
		}
		if next != nil {
			return p.sum, next
		}
	}
}

// collect takes a batch from the source. The error is why there will be no other batch.
func (p *Producer) collect(ctx context.Context, source Source) (batch []Job, err error) {
	for size := 0; len(batch) < batchJobs && size < batchBytes; {
		if len(batch) > 0 && source.Waiting() {
			break
		}
		if err := ctx.Err(); err != nil {
			return batch, err
		}
		job, err := source.Next()
		if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
			p.refuse(refusal.Line, refusal.Err)
			continue
		}
		if err != nil {
			return batch, err
		}
		if uint64(len(job.Body)) > p.MaxBody {
			p.refuse(job.Line, TooLarge(p.MaxBody))
			continue
		}
		if err := job.Check(); err != nil {
			p.refuse(job.Line, err)
			continue
		}
		batch = append(batch, job)
		size += len(job.Body)
	}
	return batch, nil
}

// TooLarge is the refusal of a job whose body is larger than a server's max-job-size.
func TooLarge(maxBody uint64) error {
	return fmt.Errorf("the body is larger than the server's max-job-size, which is %d bytes", maxBody)
}

// put puts a batch, one tube after the other: jobs sent behind a use that fails would go into another tube.
func (p *Producer) put(ctx context.Context, batch []Job) error {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].Tube == batch[0].Tube {
			n++
		}
		if err := p.Conn.Use(ctx, batch[0].Tube); err != nil {
			return fmt.Errorf("line %d: %w", batch[0].Line, err)
		}
		if err := p.putInUsed(ctx, batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// putInUsed puts jobs of the used tube. It returns when the reply to each that was sent has come, or none will come.
func (p *Producer) putInUsed(ctx context.Context, batch []Job) (err error) {
	var stop error
	var bury []burial
	begun, done, flying := 0, 0, 0
	reply := func() error {
		r, err := p.Conn.Next(ctx)
		if err != nil {
			return err
		}
		job := batch[done]
		done++
		flying -= len(job.Body)
		inserted, err := p.Conn.Inserted(r)
		refused := (*client.RefusedError)(nil)
		switch {
		case errors.As(err, &refused):
			p.refuse(job.Line, refused)
			if r.Word != "JOB_TOO_BIG" && stop == nil {
				stop = &Refusal{job.Line, refused}
			}
			return nil
		case err != nil:
			return err
		case inserted.Duplicate != "":
			p.sum.Duplicates++
		default:
			p.sum.Put++
			if inserted.Buried && !job.Bury {
				p.sum.Buried++
			}
			if job.Bury {
				bury = append(bury, burial{inserted.ID, job.Pri, job.Line})
			}
		}
		return nil
	}
	defer func() {
		p.sum.Unburied += uint64(len(bury))
		if p.sum.Unknown = uint64(begun - done); p.sum.Unknown > 0 {
			p.sum.UnknownFrom = batch[done].Line
		}
	}()
	for done < begun || begun < len(batch) && stop == nil {
		for begun < len(batch) && stop == nil && begun-done < windowJobs && flying < windowBytes {
			job := batch[begun].NewJob
			if batch[begun].Bury {
				job.Delay = buryDelay
			}
			put := job.Command()
			if err := p.Conn.Queue(ctx, put.Line, put.Body); err != nil {
				stop = fmt.Errorf("line %d: %w", batch[begun].Line, err) // after the replies to those before it
				break
			}
			p.sum.Line = batch[begun].Line
			begun++
			flying += len(job.Body)
		}
		if err := p.Conn.Flush(ctx); err != nil {
			return err
		}
		for done < begun {
			if err := reply(); err != nil {
				return err
			}
			if begun < len(batch) && begun-done <= windowJobs/2 && flying <= windowBytes/2 {
				break
			}
		}
	}
	n, err := p.bury(ctx, bury)
	bury = bury[n:]
	return errors.Join(err, stop)
}

// A burial is a job that was put, and is still to be buried.
type burial struct {
	id   uint64
	pri  uint32
	line int
}

// bury buries jobs: each has to be reserved for that. It returns how many it has buried.
func (p *Producer) bury(ctx context.Context, jobs []burial) (buried int, err error) {
	err = p.Conn.Pipeline(ctx, 2*len(jobs), func(i int) client.Command {
		job := jobs[i/2]
		if i%2 == 0 {
			return client.Command{Line: fmt.Sprintf("reserve-job %d", job.id)}
		}
		return client.Command{Line: fmt.Sprintf("bury %d %d", job.id, job.pri)}
	}, func(i int, r client.Reply) error {
		if i%2 == 0 { // if it fails, so does bury
			return nil
		}
		if err := r.Check("bury", "BURIED"); err != nil {
			return fmt.Errorf("line %d: burying job %d, which was put: %w", jobs[i/2].line, jobs[i/2].id, err)
		}
		buried++
		return nil
	})
	return buried, err
}

func (p *Producer) refuse(line int, err error) {
	p.sum.Refused++
	if p.Refused != nil {
		p.Refused(&Refusal{line, err})
	}
}
