package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
)

const (
	// maxRows is how many tubes a table has.
	maxRows = 100_000
	// tableAge is how old a table may be before it is made anew.
	tableAge  = 2 * time.Second
	tableTime = time.Minute // for making one
	// tableShare bounds what tables cost the server: 1/20 of its time. The next one waits 20
	// times as long as this one took.
	tableShare   = 20
	tableTimeout = 40 * time.Millisecond // of a request that waits for a new table and could have an older one
	// tableKept is how long a table is kept that nobody looks at.
	tableKept = time.Minute
	// tableBatch is how many tubes are asked for at once, so that nobody waits for all.
	tableBatch = 500

	// maxReply is the largest body of a reply that is read: a list of a million tubes
	// with names of usual length must fit in.
	maxReply = 64 << 20
)

// firstTimeout is tableTimeout of a request that could have no older one. Tests have more.
var firstTimeout = 5 * time.Second

// tubeTable is what a console knows of all tubes. Requests share it, and it is made by one
// goroutine at a time, which no request has to wait for.
type tubeTable struct {
	mu          sync.Mutex    // guards all below
	now         *tubeList     // the newest; nil if there is none
	making      chan struct{} // closed when the one that is being made is there; nil if none is being made
	lastRequest time.Time     // when somebody has asked last
	next        time.Time     // when a new one may be made
	edits       uint64        // changes that were made here
	drop        *time.Timer   // calls free; nil if there is nothing to free
}

// tubeList is a table of tubes. It does not change.
type tubeList struct {
	rows   []operate.Tube // by name; those with the most jobs if there are more than maxRows
	tubes  int            // how many the server has
	sum    operate.Tube   // of all: its numbers are sums, and Oldest is the greatest
	paused int
	buried int // tubes with buried jobs
	idle   int // tubes with ready jobs that are not paused and that nobody watches
	at     time.Time
	edits  uint64 // of tubeTable when it was begun
	err    error  // why there is no newer one, or none
}

// list returns the table as it was at most some seconds ago, or older if it takes long to
// make. The error is why there is none.
func (c *Console) list(ctx context.Context) (*tubeList, error) {
	t := &c.table
	t.mu.Lock()
	now := time.Now()
	t.lastRequest = now
	if t.making == nil &&
		(t.now == nil || (now.Sub(t.now.at) >= tableAge || t.now.edits != t.edits) && !now.Before(t.next)) {
		t.making = make(chan struct{})
		go c.makeTable(t.making, t.edits)
	}
	if t.drop == nil {
		t.drop = time.AfterFunc(tableKept, t.free)
	}
	list, making := t.now, t.making
	t.mu.Unlock()
	if making == nil {
		return list, list.err
	}
	timeout := tableTimeout
	if list == nil {
		timeout = firstTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-making:
		t.mu.Lock()
		list = t.now
		t.mu.Unlock()
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if list == nil {
		return nil, errTooManyTubes
	}
	return list, list.err
}

// changed makes the next request ask for a new table, so that whoever changes something sees
// the result.
func (t *tubeTable) changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.edits++
}

// free lets go of a table that nobody looks at.
func (t *tubeTable) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rest := tableKept - time.Since(t.lastRequest); rest > 0 {
		t.drop = time.AfterFunc(rest, t.free)
		return
	}
	t.now, t.drop = nil, nil
}

// makeTable makes a table and closes done. Edits is how many changes were made before.
func (c *Console) makeTable(done chan struct{}, edits uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), tableTime)
	defer cancel()
	began := time.Now()
	b := tableBuilder{list: &tubeList{at: began, edits: edits, sum: operate.Tube{Oldest: -1}}}
	var err error
	if c.cfg.Local != nil {
		err = c.cfg.Local.Tubes(b.add)
	} else {
		err = c.askTubes(ctx, b.add)
	}
	list := b.end()
	if err != nil {
		list = &tubeList{at: began, edits: edits, err: err}
	}
	t := &c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.making = list, nil
	t.next = time.Now().Add(tableShare * time.Since(began))
	if err != nil {
		t.next = time.Time{}
	}
	close(done)
}

// askTubes asks the server for all tubes, some at a time.
func (c *Console) askTubes(ctx context.Context, visit func(*operate.Tube)) error {
	// Each question has as long as any request, so that a server that does not answer is noticed as soon.
	ask := func(do func(context.Context, *client.Conn) error) error {
		ctx, cancel := context.WithTimeout(ctx, requestTime)
		defer cancel()
		return c.pool.with(ctx, func(conn *client.Conn) error { return do(ctx, conn) })
	}
	var names []string
	err := ask(func(ctx context.Context, conn *client.Conn) (err error) {
		names, err = conn.Tubes(ctx)
		return err
	})
	// No question can be asked about a name that no tube can have, but a server may list one all the same.
	names = slices.DeleteFunc(names, func(name string) bool {
		valid := client.CheckTube(name) == nil
		if !valid {
			visit(&operate.Tube{Name: name, Orphaned: -1, Oldest: -1})
		}
		return !valid
	})
	for len(names) > 0 && err == nil {
		n := min(len(names), tableBatch)
		err = ask(func(ctx context.Context, conn *client.Conn) error {
			all, err := conn.StatsTubes(ctx, names[:n])
			for i, f := range all {
				if err == nil && f != nil {
					visit(operate.TubeOf(names[i], f))
				}
			}
			return err
		})
		names = names[n:]
	}
	return err
}

// tableBuilder collects the tubes of a table.
type tableBuilder struct {
	list *tubeList
	rows []operate.Tube // those of list, and some that may be left out of it
}

func (b *tableBuilder) add(t *operate.Tube) {
	l := b.list
	l.tubes++
	s := &l.sum
	s.Ready += t.Ready
	s.Reserved += t.Reserved
	s.Delayed += t.Delayed
	s.Buried += t.Buried
	s.Waiting += t.Waiting
	s.Orphaned += max(0, t.Orphaned)
	s.Oldest = max(s.Oldest, t.Oldest)
	if t.Paused() {
		l.paused++
	} else if t.Ready > 0 && t.Watching == 0 {
		l.idle++
	}
	if t.Buried > 0 {
		l.buried++
	}
	if b.rows = append(b.rows, *t); len(b.rows) == maxRows+maxRows/4 {
		b.cut()
	}
}

// cut leaves out the tubes with the fewest jobs.
func (b *tableBuilder) cut() {
	if len(b.rows) > maxRows {
		slices.SortFunc(b.rows, func(a, b operate.Tube) int { return cmp.Compare(b.Jobs(), a.Jobs()) })
		b.rows = b.rows[:maxRows]
	}
}

// end returns the table.
func (b *tableBuilder) end() *tubeList {
	b.cut()
	slices.SortFunc(b.rows, func(a, b operate.Tube) int { return strings.Compare(a.Name, b.Name) })
	// A tube that goes and comes back while others are looked at is seen twice.
	b.list.rows = slices.CompactFunc(b.rows, func(a, b operate.Tube) bool { return a.Name == b.Name })
	return b.list
}

// sortable are the columns that tubes can be sorted by.
var sortable = func() map[string]*operate.Column {
	columns := make(map[string]*operate.Column)
	for _, c := range operate.ColumnsOf(operate.Page | operate.Sort) {
		columns[c.Key] = c
	}
	return columns
}()

// sortKeys are the keys of sortable, in the order of the columns.
func sortKeys() (keys []string) {
	for _, c := range operate.ColumnsOf(operate.Page | operate.Sort) {
		keys = append(keys, c.Key)
	}
	return keys
}

// tubeQuery says which rows of a table are wanted.
type tubeQuery struct {
	filter        string // that names have in them, whatever the case
	by            *operate.Column
	reverse       bool
	offset, limit int
}

// find returns the rows that are wanted, and how many rows all pages have together.
func (l *tubeList) find(q *tubeQuery) (rows []*operate.Tube, all int) {
	filter := strings.ToLower(q.filter)
	hits := make([]*operate.Tube, 0, len(l.rows))
	for i := range l.rows {
		if filter == "" || strings.Contains(strings.ToLower(l.rows[i].Name), filter) {
			hits = append(hits, &l.rows[i])
		}
	}
	all = len(hits)
	if q.by.Kind != operate.Name {
		// Stable: rows are by name already.
		slices.SortStableFunc(hits, func(a, b *operate.Tube) int {
			if q.reverse {
				a, b = b, a
			}
			return q.by.Compare(a, b)
		})
	} else if q.reverse {
		slices.Reverse(hits)
	}
	from := min(max(0, q.offset), all)
	return hits[from:min(all, from+q.limit)], all
}
