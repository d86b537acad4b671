package engine

import "trellis/engine/internal/reply"

type (
	// Output is where the replies to a session's commands go. [Session.Replied] completes it.
	Output = reply.Output
	// Body is a job's body that is part of a reply.
	Body = reply.Body
)
