// Package throttle keeps repeated trouble from filling the log. The server's own packages
// use it for what clients can cause as often as they like: of each kind one line is
// logged every [Interval], which tells how many were left out.
//
//	var refusals throttle.Throttle
//	if n, ok := refusals.Allow(); ok {
//		log.Warn("client refused", "unreported", n)
//	}
//
// The package starts no goroutine and keeps nothing but a time and a number.
package throttle
