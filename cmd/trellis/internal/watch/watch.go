package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"trellis/cmd/internal/client"
)

const (
	pageSize = 1000
	maxSeen  = 100_000

	// tailPages bounds how many pages a look reads behind the former end of a queue.
	tailPages = 10
)

// A Lister lists jobs as [client.Conn.ListJobs] does.
type Lister interface {
	ListJobs(ctx context.Context, tube string, state client.State, limit uint32, after uint64) ([]client.Fields, error)
}

// A Job is a new job.
type Job struct {
	ID      uint64
	State   client.State  // in which it was found
	Listing client.Fields // what the list says of it
}

// A Watcher finds the new jobs of a tube. It is for one goroutine.
type Watcher struct {
	list    Lister
	tube    string
	states  []client.State
	cursors map[client.State]*cursor

	newest  uint64              // jobs with ids up to this are old, in whatever state
	seenIDs map[uint64]struct{} // ids above it that were found
}

// A cursor is where a look goes on reading a queue: behind which jobs.
type cursor struct {
	tail uint64 // the one that was last in the queue; 0: not known
	walk uint64 // the last one that the walk has read; 0: it begins behind the first page
}

// Start returns a watcher of a tube that looks for new jobs in some states. All jobs that are in the tube now
// are old, also those in other states, which may change them later. Start reads through the whole tube once.
// The tube need not exist yet.
func Start(ctx context.Context, list Lister, tube string, states []client.State) (*Watcher, error) {
	w := &Watcher{
		list: list, tube: tube, states: states, cursors: make(map[client.State]*cursor), seenIDs: make(map[uint64]struct{}),
	}
	for _, s := range client.States {
		p := &cursor{}
		if slices.Contains(states, s) {
			w.cursors[s] = p
		}
		for full := true; full; {
			page, err := w.page(ctx, s, p.tail)
			if err != nil {
				return nil, err
			}
			for _, job := range page {
				w.newest = max(w.newest, job.Uint("id"))
			}
			if full = len(page) == pageSize; len(page) > 0 {
				p.tail = lastID(page)
			}
		}
	}
	return w, nil
}

// Look returns the new jobs that are found, by id. After an error, those that it had found are not found again.
func (w *Watcher) Look(ctx context.Context) (found []Job, err error) {
	for _, s := range w.states {
		take := func(page []client.Fields) {
			for _, f := range page {
				id := f.Uint("id")
				if _, old := w.seenIDs[id]; id > w.newest && !old {
					w.seenIDs[id] = struct{}{}
					found = append(found, Job{id, s, f})
				}
			}
		}
		if err := w.look(ctx, s, take); err != nil {
			return nil, err
		}
	}
	w.prune()
	slices.SortFunc(found, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

func (w *Watcher) look(ctx context.Context, s client.State, take func([]client.Fields)) error {
	p := w.cursors[s]
	start := uint64(0)
	if s == client.Reserved { // these are listed by id
		start = w.newest
	}
	first, err := w.page(ctx, s, start)
	if err != nil {
		return err
	}
	take(first)
	if len(first) < pageSize { // that was all
		*p = cursor{}
		if len(first) > 0 {
			p.tail = lastID(first)
		}
		return nil
	}
	for i := 0; p.tail != 0 && i < tailPages; i++ {
		page, err := w.page(ctx, s, p.tail)
		if err != nil {
			return err
		}
		take(page)
		if page == nil {
			p.tail = 0
		} else if len(page) > 0 {
			p.tail = lastID(page)
		}
		if len(page) < pageSize {
			break
		}
	}
	p.walk = cmp.Or(p.walk, lastID(first))
	page, err := w.page(ctx, s, p.walk)
	if err != nil {
		return err
	}
	take(page)
	switch {
	case len(page) == pageSize:
		p.walk = lastID(page)
	case len(page) > 0:
		p.tail, p.walk = lastID(page), 0
	default:
		p.walk = 0
	}
	return nil
}

// page returns a page behind a job, nil if the server does not know where that job was, and an empty one at the end.
func (w *Watcher) page(ctx context.Context, s client.State, after uint64) ([]client.Fields, error) {
	page, err := w.list.ListJobs(ctx, w.tube, s, pageSize, after)
	if errors.Is(err, client.ErrNotFound) {
		return nil, nil
	}
	if page == nil && err == nil {
		page = []client.Fields{}
	}
	return page, err
}

// prune bounds what is remembered.
func (w *Watcher) prune() {
	if len(w.seenIDs) <= maxSeen {
		return
	}
	ids := slices.Sorted(maps.Keys(w.seenIDs))
	w.newest = ids[len(ids)/2]
	maps.DeleteFunc(w.seenIDs, func(id uint64, _ struct{}) bool { return id <= w.newest })
}

func lastID(page []client.Fields) uint64 { return page[len(page)-1].Uint("id") }
