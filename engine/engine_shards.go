package engine

import (
	"trellis/engine/internal/clock"
	"trellis/engine/internal/record"
	"trellis/engine/internal/shard"
)

// What users of an engine name of its shards.
type (
	// Limits bound what clients can make the engine hold. Zero means no limit.
	Limits = shard.Limits
	// Journal makes changes durable.
	Journal = record.Journal
	// Barrier is a journal whose commits prove that this server leads.
	Barrier = record.Barrier
	// Holds is a journal that records reservations.
	Holds = record.Holds
	// Follower feeds an engine with what a journal tells.
	Follower = shard.Follower
)

// Always is the time for Engine.Follow of a standby, which does not know when it will serve.
const Always = clock.Always
