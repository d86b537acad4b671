// Package reply collects the replies to a session's commands, and what they depend on.
//
// Sessions and shards append to an [Output]. Whoever carries the session sends Output.Buf, with the bodies in
// between, when the journal is committed up to Output.Pos. Shards note there what the replies depend on and what
// was recorded; [Output.Answer] turns the error of an operation into its reply.
//
// A large body is not copied: a [Body] refers to it where it lies, and its pin keeps it there. So this package needs
// to know nothing of shards.
//
// An Output, and a Source, belong to the goroutine of the session's loop, or to whoever has claimed the session.
package reply
