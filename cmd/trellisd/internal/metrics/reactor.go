package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/reactor"
)

var (
	loopConnections = gauge("beanstalkd_loop_connections",
		"Open connections of an event loop, those included that are being ended.", "loop")
	loopEnding = gauge("beanstalkd_loop_ending_connections",
		"Connections of an event loop that are being ended: the client has quit or sent its last, and is still being answered.", "loop")
	loopOpened = counter("beanstalkd_loop_connections_total",
		"Connections that were given to an event loop.", "loop")
	loopReceived = counter("beanstalkd_loop_received_bytes_total",
		"Bytes that an event loop has read from clients.", "loop")
	loopSent = counter("beanstalkd_loop_sent_bytes_total",
		"Bytes that an event loop has written to clients.", "loop")
	loopStalled = gauge("beanstalkd_loop_stalled_connections",
		"Connections whose clients do not read their replies fast enough.", "loop")
	loopStalls = counter("beanstalkd_loop_stalls_total",
		"Times that a client began not to read its replies fast enough.", "loop")
	loopPendingInput = gauge("beanstalkd_loop_pending_input_bytes",
		"Bytes that were read and wait to be executed.", "loop")
	loopPendingOutput = gauge("beanstalkd_loop_pending_output_bytes",
		"Bytes of replies that clients have not taken yet.", "loop")

	accepted = counter("beanstalkd_accepted_connections_total",
		"Connections that were accepted and given to an event loop.")
	maxConnections = gauge("beanstalkd_max_connections",
		"How many connections there may be.")
	refused = counter("beanstalkd_refused_connections_total",
		"Connections that were accepted and closed at once: limit, there were as many as there may be; "+
			"error, giving it to an event loop failed.", "reason")
	acceptFailures = counter("beanstalkd_accept_failures_total",
		"Attempts to accept a connection that failed, mostly for want of descriptors.")
	acceptPauses = counter("beanstalkd_accept_pauses_total",
		"Times that accepting paused because it had failed.")
	acceptPaused = gauge("beanstalkd_accept_paused_listeners",
		"Listening sockets on which accepting is paused.")
	closedClients = counter("beanstalkd_closed_clients_total",
		"Clients that the server closed: input_limit, more commands were sent than may wait; "+
			"output_limit, they were owed more replies than may wait; idle, nothing happened for too long; "+
			"output_timeout, no replies were taken for too long at the connection's end; "+
			"no_descriptor, none was left to go on answering after the client had sent its last; "+
			"panic, executing a command failed.",
		"reason")
)

var (
	reasonInput   = label("reason", "input_limit")
	reasonOutput  = label("reason", "output_limit")
	reasonIdle    = label("reason", "idle")
	reasonTimeout = label("reason", "output_timeout")
	reasonLacking = label("reason", "no_descriptor")
	reasonPanic   = label("reason", "panic")

	reasonLimit = label("reason", "limit")
	reasonError = label("reason", "error")
)

func collectReactor(ch chan<- prometheus.Metric, s *reactor.Stats) {
	var input, output, idle, timeout, lacking, panics uint64
	for i := range s.Loops {
		l, loop := &s.Loops[i], label("loop", strconv.Itoa(i))
		ch <- loopConnections.with(float64(l.Connections), loop)
		ch <- loopEnding.with(float64(l.Ending), loop)
		ch <- loopOpened.with(float64(l.Opened), loop)
		ch <- loopReceived.with(float64(l.BytesIn), loop)
		ch <- loopSent.with(float64(l.BytesOut), loop)
		ch <- loopStalled.with(float64(l.Stalled), loop)
		ch <- loopStalls.with(float64(l.Stalls), loop)
		ch <- loopPendingInput.with(float64(l.PendingInput), loop)
		ch <- loopPendingOutput.with(float64(l.PendingOutput), loop)
		input += l.OverLimit
		output += l.OverOutput
		idle += l.Idle
		timeout += l.Cut
		lacking += l.Lacking
		panics += l.Panics
	}
	ch <- accepted.with(float64(s.Accepted))
	ch <- maxConnections.with(float64(s.MaxConnections))
	ch <- refused.with(float64(s.RefusedOver), reasonLimit)
	ch <- refused.with(float64(s.Refused), reasonError)
	ch <- acceptFailures.with(float64(s.AcceptFailures))
	ch <- acceptPauses.with(float64(s.AcceptPauses))
	ch <- acceptPaused.with(float64(s.AcceptPaused))
	ch <- closedClients.with(float64(input), reasonInput)
	ch <- closedClients.with(float64(output), reasonOutput)
	ch <- closedClients.with(float64(idle), reasonIdle)
	ch <- closedClients.with(float64(timeout), reasonTimeout)
	ch <- closedClients.with(float64(lacking), reasonLacking)
	ch <- closedClients.with(float64(panics), reasonPanic)
}
