// Package gnetpoll does with gnet's poller what gnet has no means for: to stop reading from
// a connection for a while, to watch a descriptor that is no connection, and to poll in
// gnet's place.
//
// All connections of an event loop are registered with its poller by their own
// descriptors, so that whoever knows the poller's descriptor can change what is
// reported of them. That descriptor is taken from gnet's unexported fields, and is proven
// to be the right one by a change that fails otherwise. Where it is not found, or with
// gnet's build tag poll_opt, whose poller holds pointers with the descriptors, the Poller does not
// work and its owner does without.
//
// # Polling in gnet's place
//
// On Linux, a callback of gnet's may itself poll, for as long as it likes, with Look and
// Sleep. gnet reports tasks for the loop (EventLoop.Execute, Conn.Close, the end) by an
// eventfd that is registered edge-triggered, so that the report comes once. Whoever gets it
// (IsTask) calls PassTask and returns to gnet, whose next poll then finds it.
package gnetpoll
