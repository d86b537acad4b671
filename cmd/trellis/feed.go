package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/cmd/trellis/internal/producer"
)

// feed puts the jobs of a source, tells on errs which were refused, and says in the end how many there were.
func feed(
	ctx context.Context, c *client.Conn, out *printer, errs io.Writer, maxBody uint64, source producer.Source,
) error {
	progress := newProgressLine(errs)
	begun, shown := time.Now(), time.Now()
	p := producer.Producer{
		Conn: c, MaxBody: maxBody,
		Refused: func(r *producer.Refusal) {
			progress.clear()
			fmt.Fprintln(errs, visible(r.Error()))
		},
		Progress: func(s producer.Summary) {
			if now := time.Now(); now.Sub(shown) > 100*time.Millisecond {
				shown = now
				progress.write(fmt.Sprintf("%s put, %.0f/s", jobsIn(s.Put, ""), float64(s.Put)/now.Sub(begun).Seconds()))
			}
		},
	}
	sum, err := p.Run(ctx, source)
	progress.clear()
	sentence := jobsIn(sum.Put, "") + " put"
	if sum.Buried > 0 {
		sentence += fmt.Sprintf(", %s of them buried by the server, which had no memory to queue them",
			operate.Count(sum.Buried))
	}
	if sum.Duplicates > 0 {
		sentence += fmt.Sprintf(", %s had the key of another", operate.Count(sum.Duplicates))
	}
	if sum.Refused > 0 {
		sentence += fmt.Sprintf(", %s refused", operate.Count(sum.Refused))
	}
	said := out.result(sentence, client.Fields{
		number("put", sum.Put), number("buried", sum.Buried), number("duplicates", sum.Duplicates),
		number("refused", sum.Refused),
	})
	switch {
	case err != nil:
		return errors.Join(unfinished(err, &sum), said)
	case sum.Refused > 0:
		return errors.Join(refused(fmt.Errorf("%s refused", jobsIn(sum.Refused, ""))), said)
	}
	return said
}

// unfinished says up to where an unfinished input has come.
func unfinished(err error, sum *producer.Summary) error {
	if sum.Line == 0 {
		return err
	}
	rest := fmt.Sprintf("; nothing behind line %d was sent", sum.Line)
	if sum.Unknown > 0 {
		rest = fmt.Sprintf("; it is not known of %s, line %d and what follows up to line %d, whether they were put",
			jobsIn(sum.Unknown, ""), sum.UnknownFrom, sum.Line)
	}
	if sum.Unburied > 0 {
		rest += fmt.Sprintf("; of those that were put, it is not known of %s whether they were buried",
			jobsIn(sum.Unburied, ""))
	}
	return &partialError{err, rest}
}

// interruptible is r, but a read ends with the context. What is read then is lost.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	return &interruptibleReader{ctx: ctx, r: r, done: make(chan struct{}, 1)}
}

type interruptibleReader struct {
	ctx  context.Context
	r    io.Reader
	buf  []byte // what has not been taken of the last read; with err, the reading goroutine's until done
	err  error
	done chan struct{} // a token when the read under way has ended
}

func (i *interruptibleReader) Read(p []byte) (int, error) {
	if len(i.buf) == 0 && i.err == nil {
		buf := make([]byte, max(len(p), 512))
		go func() {
			n, err := i.r.Read(buf)
			i.buf, i.err = buf[:n], err
			i.done <- struct{}{}
		}()
		select {
		case <-i.done:
		case <-i.ctx.Done():
			return 0, i.ctx.Err()
		}
	}
	n := copy(p, i.buf)
	if i.buf = i.buf[n:]; len(i.buf) == 0 {
		return n, i.err
	}
	return n, nil
}
