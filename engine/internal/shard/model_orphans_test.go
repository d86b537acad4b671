package shard

import (
	"cmp"

	"trellis/engine/internal/clock"
)

// nobody has reserved orphans.
var nobody = new(modelClient)

// forsake is the end of a reservation whose client has left.
func (m *model) forsake(j *modelJob, atOnce bool) {
	p := m.policy(j.tube.name)
	if p.Linger == 0 || atOnce {
		m.lapse(j, p.Disconnects)
		return
	}
	j.holder, j.lingers = nobody, m.now+clock.Seconds(p.Linger)
}

// untold is the job that was handed over to the client, and of which it was not told.
func (c *modelClient) untold() uint64 { return c.given }

// endLingering ends what is due until then of the reservations of a tube's orphans.
func (m *model) endLingering(tube string, until clock.Time) {
	ends := func(j *modelJob) clock.Time { return min(j.lingers, j.due) }
	for _, j := range m.all(func(j *modelJob) bool { return j.tube.name == tube && j.lingers != 0 && ends(j) <= until }, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(ends(a), ends(b)), cmp.Compare(a.id, b.id))
	}) {
		if j.due <= min(j.lingers, m.now) {
			m.timeOut(j)
		} else {
			m.lapse(j, m.policy(tube).Disconnects)
		}
	}
}

// worksOn reports whether a client is taken for a job's worker.
func (m *model) worksOn(c *modelClient, j *modelJob) bool { return j.holder == c || j.lingers != 0 }

// adopt makes an orphan the client's.
func (m *model) adopt(j *modelJob, c *modelClient) {
	j.holder, j.lingers, j.since, j.due = c, 0, m.next(), m.now+clock.Seconds(j.ttr)
}
