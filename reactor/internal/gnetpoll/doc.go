// Package gnetpoll tells gnet's poller what gnet has no means for: to stop reading from a
// connection for a while, and to watch a descriptor that is no connection.
//
// All connections of an event loop are registered with its poller by their own
// descriptors, so that whoever knows the poller's descriptor can change what is
// reported of them. That descriptor is taken from gnet's unexported fields, and is proven
// to be the right one by a change that fails otherwise. Where it is not found, or with
// gnet's build tag poll_opt, whose poller holds pointers with the descriptors, the Poller does not
// work and its owner does without.
package gnetpoll
