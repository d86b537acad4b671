package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// An expirer is a client whose jobs expire while servers come and go.
type expirer struct {
	number int
	buries bool // its jobs are buried in a dead tube then

	numbers  int
	greatest uint64
	jobs     map[int]expiring // by number. Those that may be there
	expired  int              // that were seen to be gone, or buried
}

type expiring struct {
	id      uint64 // 0 until it is known
	seconds int
	put     span // to is zero until it is known
	ending  bool // delete was sent
}

func (x *expirer) tube() string { return fmt.Sprint("expirer-", x.number) }

func (x *expirer) deadTube() string { return x.tube() + "-dead" }

// run uses a server until it is gone. The error is what the server did wrong.
func (x *expirer) run(w *wire) error {
	lines := []string{"use " + x.tube(), "watch " + x.tube()}
	if x.buries {
		lines = append(lines, fmt.Sprintf("set-tube %s dead=%s", x.tube(), x.deadTube()))
	}
	if _, err := w.ask(lines); err != nil {
		return nil
	}
	for {
		step := x.put
		if len(x.jobs) > 100 || rand.IntN(3) == 0 {
			step = x.reserve
		}
		if err := step(w); errors.Is(err, errGone) {
			return nil
		} else if err != nil {
			return fmt.Errorf("expirer %d: %w", x.number, err)
		}
	}
}

func (x *expirer) put(w *wire) error {
	x.numbers++
	j := expiring{seconds: 1 + rand.IntN(4), put: span{from: time.Now()}}
	x.jobs[x.numbers] = j
	body := bodyOf(x.number, x.numbers, 0)
	r, err := w.ask([]string{fmt.Sprintf("put 0 %d 1000 %d exp:%d\r\n%s", 100*rand.IntN(2), len(body), j.seconds, body)})
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(r[0].line, "INSERTED %d", &j.id); err != nil {
		return fmt.Errorf("the reply to a put is %q", r[0].line)
	}
	j.put.to = time.Now()
	x.jobs[x.numbers], x.greatest = j, max(x.greatest, j.id)
	return nil
}

// reserve reserves a job, and deletes it or holds it until the connection ends.
func (x *expirer) reserve(w *wire) error {
	r, err := w.ask([]string{"reserve-with-timeout 0"})
	if err != nil || r[0].line == "TIMED_OUT" {
		return err
	}
	var number int
	_, err = fmt.Sscan(r[0].body, new(int), &number)
	j, ok := x.jobs[number]
	if err != nil || !ok || j.id != 0 && r[0].line != fmt.Sprintf("RESERVED %d %d", j.id, len(r[0].body)) {
		return fmt.Errorf("the reply to a reserve is %q, body %q; want %+v", r[0].line, r[0].body, j)
	}
	if rand.IntN(2) == 0 || j.id == 0 {
		return nil
	}
	return x.end(w, number)
}

// end deletes a job that is there.
func (x *expirer) end(w *wire, number int) error {
	j := x.jobs[number]
	j.ending = true
	x.jobs[number] = j
	r, err := w.ask([]string{fmt.Sprint("delete ", j.id)})
	if err != nil {
		return err
	}
	if r[0].line != "DELETED" {
		return fmt.Errorf("the reply to a delete is %q", r[0].line)
	}
	delete(x.jobs, number)
	return nil
}

// settle compares the jobs that there are with those that there must be.
func (x *expirer) settle(jobs map[int]found, now time.Time) error {
	for n, f := range jobs {
		j, ok := x.jobs[n]
		if !ok || j.id != 0 && j.id != f.id || f.body != bodyOf(x.number, n, 0) {
			return fmt.Errorf("expirer %d: job %d (number %d) is there, and there was %+v", x.number, f.id, n, j)
		}
		if j.id = f.id; j.put.to.IsZero() {
			j.put.to = now
		}
		j.ending = false
		x.jobs[n] = j
		if buried := f.stats["tube"] == strconv.Quote(x.deadTube()); buried != (f.stats["state"] == "buried") || buried && !x.buries || buried && j.early(now) {
			return fmt.Errorf("expirer %d: job %d, %+v, is %v", x.number, f.id, j, f.stats)
		}
	}
	for n, j := range x.jobs {
		if _, ok := jobs[n]; !ok {
			if j.id != 0 && !j.ending && j.early(now) {
				return fmt.Errorf("expirer %d: job %d (number %d) is lost: %+v", x.number, j.id, n, j)
			}
			delete(x.jobs, n)
		}
	}
	return nil
}

// early reports whether a job has to be there at a time, which may be measured as badly as wrongTime
// allows for.
func (j expiring) early(at time.Time) bool {
	return at.Before(j.put.from.Add(time.Duration(j.seconds)*time.Second - 2*time.Second))
}

// awaitExpiries waits until all jobs have expired that are due by then.
func (x *expirer) awaitExpiries(w *wire, then time.Time) error {
	for n, j := range x.jobs {
		if then.Before(j.put.to.Add(time.Duration(j.seconds) * time.Second)) {
			continue
		}
		if err := x.awaitExpiry(w, n); err != nil {
			return err
		}
		x.expired++
	}
	return nil
}

// awaitExpiry waits until a job has expired that is due to, and leaves nothing of it.
func (x *expirer) awaitExpiry(w *wire, number int) error {
	id := x.jobs[number].id
	for began := time.Now(); time.Since(began) < servertest.Patience; time.Sleep(time.Millisecond) {
		r, err := w.ask([]string{fmt.Sprint("stats-job ", id)})
		if err != nil {
			return err
		}
		stats := parseStats(r[0].body)
		switch {
		case !x.buries && r[0].line == "NOT_FOUND":
			delete(x.jobs, number)
			return nil
		case x.buries && stats["state"] == "buried" && stats["tube"] == strconv.Quote(x.deadTube()):
			return x.end(w, number)
		}
	}
	return fmt.Errorf("expirer %d: job %d has not expired: %+v", x.number, id, x.jobs[number])
}
