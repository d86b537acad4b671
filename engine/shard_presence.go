package engine

// A tube exists while it has jobs, or clients that use or watch it. These count themselves in and out.

// Name returns the tube's name.
func (t *tube) Name() string { return t.name }

// Shards returns the set of the tube's shard alone.
func (t *tube) Shards() shardSet { return t.shard.self }

// Enter counts clients that use, or watch, the tube of that name, which is made if there is none. If a client
// asks for it, the result is nil where there are as many tubes already as there may be.
func (c *tx) Enter(now Time, name []byte, using, watching int, asked bool) *tube {
	sh := c.shared.shardFor(name)
	sh.lock(c, now)
	t := sh.tube(name, asked)
	if t != nil {
		t.using += using
		t.watching += watching
	}
	sh.unlock(c)
	return t
}

// Attend counts more clients, or fewer, that use or watch a tube. It ends a tube that nobody needs any more.
func (c *tx) Attend(now Time, t *tube, using, watching int) {
	sh := t.shard
	sh.lock(c, now)
	t.using += using
	t.watching += watching
	sh.removeIfUnused(t)
	sh.unlock(c)
}

// TubeNamed returns the tube of that name, nil if there is none.
func (c *tx) TubeNamed(now Time, name []byte) *tube {
	sh := c.shared.shardFor(name)
	sh.lock(c, now)
	defer sh.unlock(c)
	return sh.byName[string(name)]
}
