package shard

// BodyMemory is how many bytes of memory bodies take, up to 64 KiB for each shard more or less. It is 0 without
// Limits.Bodies. Any goroutine may call it.
func (e *Shards) BodyMemory() int64 { return e.resident.Load() }
