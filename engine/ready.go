package engine

// readyQueue holds a tube's ready jobs in the order (priority, id). The
// shard's lock guards it.
//
// Jobs come mostly in the order of their ids and with few different
// priorities, so the queue keeps runs: a linked list for each of a few
// priorities, ascending by id, which costs nothing but the links that a record
// has anyway. A job that fits at neither end of a run, or finds all runs taken,
// goes to a heap. Whatever the workload, a step costs at most O(log n).
type readyQueue struct {
	runs   []run // never empty ones; at most maxRuns
	heap   heap
	ages   ages
	count  int
	urgent int // of count, those with a priority under urgentBelow
}

type run struct {
	pri        uint32
	head, tail ref
}

const (
	maxRuns     = 8
	urgentBelow = 1024
)

func (q *readyQueue) push(sh *shard, r ref, j *job) {
	q.count++
	sh.tally.in[ready]++
	if j.pri < urgentBelow {
		q.urgent++
		sh.tally.urgent++
	}
	j.state = ready
	q.ages.add(j.at)
	if u := q.run(j.pri); u != nil {
		if tail := sh.job(u.tail); tail.id < j.id {
			j.prev, j.next, tail.next, u.tail = u.tail, 0, r, r
			j.heaped = false
			return
		}
		if head := sh.job(u.head); j.id < head.id {
			j.prev, j.next, head.prev, u.head = 0, u.head, r, r
			j.heaped = false
			return
		}
		q.pushHeap(sh, r, j)
		return
	}
	if len(q.runs) == maxRuns {
		q.pushHeap(sh, r, j)
		return
	}
	j.prev, j.next = 0, 0
	j.heaped = false
	q.runs = append(q.runs, run{pri: j.pri, head: r, tail: r})
}

func (q *readyQueue) pushHeap(sh *shard, r ref, j *job) {
	j.heaped = true
	j.next = 0
	q.heap.push(sh, heapEntry{key: uint64(j.pri), id: j.id, ref: r})
}

func (q *readyQueue) remove(sh *shard, j *job) {
	q.count--
	q.ages.remove(j.at)
	sh.tally.in[ready]--
	if j.pri < urgentBelow {
		q.urgent--
		sh.tally.urgent--
	}
	if j.heaped {
		q.heap.remove(sh, int(j.prev))
		j.heaped = false
		return
	}
	if j.prev != 0 {
		sh.job(j.prev).next = j.next
	}
	if j.next != 0 {
		sh.job(j.next).prev = j.prev
	}
	if j.prev != 0 && j.next != 0 {
		return
	}
	switch u := q.run(j.pri); {
	case j.prev == 0 && j.next == 0:
		last := len(q.runs) - 1
		*u = q.runs[last]
		q.runs = q.runs[:last]
	case j.prev == 0:
		u.head = j.next
	default:
		u.tail = j.prev
	}
}

// run returns the run of a priority, nil if there is none.
func (q *readyQueue) run(pri uint32) *run {
	for i := range q.runs {
		if q.runs[i].pri == pri {
			return &q.runs[i]
		}
	}
	return nil
}

// first returns the job that is to be reserved first. The queue must not be
// empty.
func (q *readyQueue) first(sh *shard) (ref, *job) {
	var best ref
	var bj *job
	if len(q.heap) > 0 {
		best = q.heap[0].ref
		bj = sh.job(best)
	}
	for i := range q.runs {
		u := &q.runs[i]
		if bj != nil && u.pri > bj.pri {
			continue
		}
		if j := sh.job(u.head); bj == nil || j.sooner(bj) {
			best, bj = u.head, j
		}
	}
	return best, bj
}

// sooner tells whether j goes before k among ready jobs.
func (j *job) sooner(k *job) bool {
	return j.pri < k.pri || j.pri == k.pri && j.id < k.id
}
