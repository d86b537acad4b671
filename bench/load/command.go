package load

import (
	"strconv"

	"trellis/bench"
)

// longestTime is the longest time of the protocol, in seconds. All jobs have it as their TTR, so that
// no reservation ends by itself.
const longestTime uint32 = 1<<32 - 1

// push notes a command that has been appended to w.out.
func (w *worker) push(c *conn, s slot) {
	if c.tail-c.head > w.mask {
		panic("bench: a driver sends more commands at once than the depth of its connection")
	}
	*w.slot(c, c.tail) = s
	c.tail++
}

// sendPut puts a new job. sent is when the put was due, start when its unit was. Whoever reserves the job gets the tag
// from the book; a job with a tag other than 0 does not count in bench.HandoverMetric.
func (w *worker) sendPut(c *conn, sent, start int64, pri, delay, tag uint32) {
	seq := w.seq
	w.seq += uint64(len(w.counters))
	w.puts++
	size := w.bodies.size(seq)
	b := w.out
	if w.putLine != nil && pri|delay == 0 {
		b = append(b, w.putLine...)
	} else {
		b = append(b, "put "...)
		b = append(strconv.AppendUint(b, uint64(pri), 10), ' ')
		b = append(strconv.AppendUint(b, uint64(delay), 10), ' ')
		b = append(strconv.AppendUint(b, uint64(longestTime), 10), ' ')
		b = append(strconv.AppendUint(b, uint64(size), 10), '\r', '\n')
	}
	b = w.bodies.append(b, seq, size)
	w.out = append(b, '\r', '\n')
	w.push(c, slot{sentAt: sent, start: start, arg: seq, tag: tag, metric: metricPut})
}

func (w *worker) sendReserve(c *conn, sent, start int64, stage uint8) {
	w.out = append(w.out, "reserve\r\n"...)
	w.push(c, slot{sentAt: sent, start: start, metric: metricReserve, stage: stage})
}

func (w *worker) sendNumber(c *conn, m metric, command string, n uint64, sent, start int64, stage uint8) {
	w.out = append(strconv.AppendUint(append(w.out, command...), n, 10), '\r', '\n')
	w.push(c, slot{sentAt: sent, start: start, arg: n, metric: m, stage: stage})
}

func (w *worker) sendDelete(c *conn, id uint64, sent, start int64) {
	w.sendNumber(c, metricDelete, "delete ", id, sent, start, 0)
}

func (w *worker) sendBury(c *conn, id uint64, sent, start int64) {
	w.book.release(id)
	w.out = append(strconv.AppendUint(append(w.out, "bury "...), id, 10), " 0\r\n"...)
	w.push(c, slot{sentAt: sent, start: start, arg: id, metric: metricBury})
}

// sendTube sends a command that ends with the name of a tube, or a token.
func (w *worker) sendTube(c *conn, m metric, command, tube string) {
	w.out = append(append(append(w.out, command...), tube...), '\r', '\n')
	now := w.now()
	w.push(c, slot{sentAt: now, start: now, metric: m})
}

// check books what a reply says, and reports whether it is one that the command may get.
func (w *worker) check(s *slot, r *reply, now int64) bool {
	if r.kind != expected[s.metric] {
		if s.stage == mayFindNothing && r.kind == allowed[s.metric] && r.kind != replyGarbage {
			return true
		}
		w.violate(bench.ViolationReply, "%s was answered %q", metricNames[s.metric], r.line)
		return false
	}
	put, took := s.sentAt, int64(-1)
	switch s.metric {
	case metricPut:
		took = w.book.inserted(r.id, s.arg, s.tag, put)
		w.tag = s.tag
	case metricReserve:
		w.tag, took = w.book.reserved(r.id, r.body, now)
		w.took, put = took, now-took
	case metricDelete:
		w.deletions++
		w.book.deleted(s.arg)
	}
	if took >= 0 && w.tag == 0 {
		w.record(metricHandover, put, took)
	}
	return true
}
