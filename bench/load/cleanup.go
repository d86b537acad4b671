package load

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"trellis/bench"
)

// furtherTubes makes the further tubes of the configuration, each with a job whose delay does not end.
func (s *shared) furtherTubes(ctl *control) error {
	n := s.cfg.FurtherTubes
	if n == 0 {
		return nil
	}
	err := ctl.pipeline(2*n, func(b []byte, i int) []byte {
		if i%2 == 0 {
			return fmt.Appendf(b, "use %s-further-%d\r\n", s.prefix, i/2)
		}
		seq := noSeq - 1 - uint64(i) // out of the way of the workers' jobs
		size := s.bodies.size(seq)
		b = fmt.Appendf(b, "put 0 %d %d %d\r\n", longestTime, longestTime, size)
		return append(s.bodies.append(b, seq, size), '\r', '\n')
	}, func(i int, r *reply) error {
		if i%2 == 0 {
			if r.kind != replyUsing {
				return fmt.Errorf("use: the server answered %q", r.line)
			}
			return nil
		}
		if r.kind != replyInserted {
			return fmt.Errorf("put: the server answered %q", r.line)
		}
		s.book.inserted(r.id, noSeq-1-uint64(i), 0, 0)
		return nil
	})
	if err != nil {
		return fmt.Errorf("making further tubes: %w", err)
	}
	if _, err := ctl.ask("use default", replyUsing); err != nil {
		return err
	}
	return nil
}

// watchedAtOnce is how many tubes the connection that cleans up watches; it watches twice as many while it changes to
// the next ones. Servers may bound the number, and a reserve may cost more with each.
const watchedAtOnce = 1000

// cleanUp takes all jobs of the run out of the server, and books what comes. It waits for the jobs of closed
// connections, which the server may take a moment to give back.
func (s *shared) cleanUp(ctl *control) error {
	if s.cfg.Keep {
		return nil
	}
	for deadline := time.Now().Add(s.cfg.ReplyTimeout); ; time.Sleep(10 * time.Millisecond) {
		for tubes := range slices.Chunk(s.tubes, watchedAtOnce) {
			err := ctl.watchOnly(tubes)
			if err == nil {
				err = s.drain(ctl, tubes, deadline)
			}
			if err != nil {
				return fmt.Errorf("taking the remaining jobs out: %w", err)
			}
		}
		left, err := s.deleteRest(ctl)
		if err != nil {
			return fmt.Errorf("deleting the remaining jobs: %w", err)
		}
		if left == 0 || s.abort.Load() || time.Now().After(deadline) {
			return nil
		}
	}
}

// deleteRest deletes by id the jobs that drain cannot reserve, which are delayed or buried.
//
// left: jobs that are still reserved by connections whose close the server has not noticed. A job that does not exist
// is lost, or a delete was under way when the run was interrupted.
func (s *shared) deleteRest(ctl *control) (left int, err error) {
	var ids []uint64
	s.book.ids(func(id uint64) { ids = append(ids, id) })
	slices.Sort(ids)
	var refused []uint64
	err = ctl.eachJob("delete ", ids, func(id uint64, r *reply) {
		if r.kind != replyDeleted {
			refused = append(refused, id)
			return
		}
		s.book.deleted(id)
	})
	if err != nil {
		return 0, err
	}
	err = ctl.eachJob("stats-job ", refused, func(_ uint64, r *reply) {
		if r.kind != replyNotFound {
			left++
		}
	})
	return left, err
}

// drain reserves and deletes what is ready in the tubes, which ctl watches, however long that takes. After the
// deadline it does not look whether there is more: a server may acknowledge deletes for ever and keep the jobs. It
// sends no command behind a reserve that may time out: there are servers that lose such a command.
func (s *shared) drain(ctl *control, tubes []string, deadline time.Time) error {
	const batch = 128
	for !s.abort.Load() {
		ready, err := countReady(ctl, tubes)
		if err != nil {
			return err
		}
		found := 0
		for left := max(ready, 1); left > 0; left -= batch { // 1: a job that the server does not count
			n, err := s.takeOut(ctl, min(left, batch))
			if err != nil {
				return err
			}
			found += n
		}
		if found == 0 || time.Now().After(deadline) {
			break
		}
	}
	return nil
}

func countReady(ctl *control, tubes []string) (ready int, err error) {
	err = ctl.pipeline(len(tubes), func(b []byte, i int) []byte {
		return fmt.Appendf(b, "stats-tube %s\r\n", tubes[i])
	}, func(i int, r *reply) error {
		switch r.kind {
		case replyOK:
			n, _ := strconv.Atoi(parseStats(r.body)["current-jobs-ready"])
			ready += n
		case replyNotFound:
		default:
			return fmt.Errorf("stats-tube %s: the server answered %q", tubes[i], r.line)
		}
		return nil
	})
	return ready, err
}

// takeOut reserves n jobs, deletes those that it gets, and returns their number.
func (s *shared) takeOut(ctl *control, n int) (int, error) {
	var ids []uint64
	err := ctl.pipeline(n, func(b []byte, _ int) []byte {
		return append(b, "reserve-with-timeout 0\r\n"...)
	}, func(_ int, r *reply) error {
		switch r.kind {
		case replyReserved:
			s.book.reserved(r.id, r.body, s.now())
			ids = append(ids, r.id)
		case replyTimedOut:
		default:
			return fmt.Errorf("reserve: the server answered %q", r.line)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = ctl.eachJob("delete ", ids, func(id uint64, r *reply) {
		if r.kind != replyDeleted {
			s.violations.add(bench.ViolationReply, "delete %d was answered %q", id, r.line)
			return
		}
		s.book.deleted(id)
	})
	return len(ids), err
}

// unsure reports whether the reply to a put or to a delete of a worker that has ended did not come, so that its job
// may be in the server or not.
func (w *worker) unsure() bool {
	for i := range w.conns {
		c := &w.conns[i]
		for at := c.head; at != c.tail; at++ {
			if m := w.slot(c, at).metric; m == metricPut || m == metricDelete {
				return true
			}
		}
	}
	return false
}

// closeAll closes the connections of workers that have ended. It may be called again.
func (s *shared) closeAll(workers []*worker) {
	for _, w := range workers {
		w.closeAll()
	}
	s.book.releaseAll()
}

// closeAll closes all that a worker has open, once its thread has ended. It may be called again.
func (w *worker) closeAll() {
	for i := range w.conns {
		if c := &w.conns[i]; c.fd >= 0 {
			w.close(c)
		}
	}
	if !w.closed {
		w.closed = true
		w.poll.close()
	}
}
