package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/reactor"
)

var reactorMetrics = list[*reactor.Stats]{
	counter("beanstalkd_accepted_connections_total", "Connections that were accepted and given to an event loop.",
		func(s *reactor.Stats) float64 { return float64(s.Accepted) }),
	gauge("beanstalkd_max_connections", "How many connections there may be.",
		func(s *reactor.Stats) float64 { return float64(s.MaxConnections) }),
	gauge("beanstalkd_forwarded_connections",
		"Connections of clients of a cluster's other members, for which this one, as their leader, executes commands.",
		func(s *reactor.Stats) float64 { return float64(s.Channels) }),
	counters("reason", "beanstalkd_refused_connections_total",
		"Connections that were accepted and closed at once: limit, there were as many as there may be; "+
			"error, giving it to an event loop failed; proxy, it came to a listener for proxies from elsewhere.",
		by[*reactor.Stats]{
			{"limit", func(s *reactor.Stats) float64 { return float64(s.RefusedOver) }},
			{"error", func(s *reactor.Stats) float64 { return float64(s.Refused) }},
			{"proxy", func(s *reactor.Stats) float64 { return float64(s.Strangers) }},
		}),
	counter("beanstalkd_accept_failures_total",
		"Attempts to accept a connection that failed, mostly for want of descriptors.",
		func(s *reactor.Stats) float64 { return float64(s.AcceptFailures) }),
	counter("beanstalkd_accept_pauses_total", "Times that accepting paused because it had failed.",
		func(s *reactor.Stats) float64 { return float64(s.AcceptPauses) }),
	gauge("beanstalkd_accept_paused_listeners", "Listening sockets on which accepting is paused.",
		func(s *reactor.Stats) float64 { return float64(s.AcceptPaused) }),
	counters("reason", "beanstalkd_closed_clients_total",
		"Clients that the server closed: input_limit, more commands were sent than may wait; "+
			"output_limit, they were owed more replies than may wait; "+
			"output_total, they were owed most while all together were owed too much; idle, nothing happened for too long; "+
			"age, their connection was old; certificate, theirs was not accepted any more; "+
			"output_timeout, no replies were taken for too long at the connection's end; "+
			"no_descriptor, none was left to go on answering after the client had sent its last; "+
			"no_leader, a standby knew of no leader for too long; "+
			"leader_lost, a standby's connection with the leader has ended; "+
			"no_contact, a standby had no answer from a leader for 6 seconds, or its clients' jobs were freed; "+
			"not_repeatable, what they had no answer to could not be sent to the next leader; "+
			"lags, this standby had not applied for 6 seconds what was executed for them; "+
			"unknown_answer, what a leader before had told a standby's client is not known; "+
			"contradiction, the log told of commands that the client had not sent, which is a fault of the program; "+
			"panic, executing a command failed.", by[*reactor.Stats]{
			{"input_limit", overLoops(func(l *reactor.LoopStats) uint64 { return l.OverLimit })},
			{"output_limit", overLoops(func(l *reactor.LoopStats) uint64 { return l.OverOutput })},
			{"output_total", overLoops(func(l *reactor.LoopStats) uint64 { return l.OverTotal })},
			{"idle", overLoops(func(l *reactor.LoopStats) uint64 { return l.Idle })},
			{"age", overLoops(func(l *reactor.LoopStats) uint64 { return l.Aged })},
			{"certificate", overLoops(func(l *reactor.LoopStats) uint64 { return l.Unverified })},
			{"output_timeout", overLoops(func(l *reactor.LoopStats) uint64 { return l.Cut })},
			{"no_descriptor", overLoops(func(l *reactor.LoopStats) uint64 { return l.Lacking })},
			{"no_leader", overLoops(func(l *reactor.LoopStats) uint64 { return l.Unserved })},
			{"leader_lost", overLoops(func(l *reactor.LoopStats) uint64 { return l.TrunkLost })},
			{"no_contact", overLoops(func(l *reactor.LoopStats) uint64 { return l.NoContact })},
			{"not_repeatable", overLoops(func(l *reactor.LoopStats) uint64 { return l.Unrepeated })},
			{"lags", overLoops(func(l *reactor.LoopStats) uint64 { return l.Lags })},
			{"unknown_answer", overLoops(func(l *reactor.LoopStats) uint64 { return l.Unknown })},
			{"contradiction", overLoops(func(l *reactor.LoopStats) uint64 { return l.Misfits })},
			{"panic", overLoops(func(l *reactor.LoopStats) uint64 { return l.Panics })},
		}),
}

var loopMetrics = list[*reactor.LoopStats]{
	gauge("beanstalkd_loop_connections", "Open connections of an event loop, those included that are being ended.",
		func(l *reactor.LoopStats) float64 { return float64(l.Connections) }, "loop"),
	gauge("beanstalkd_loop_ending_connections",
		"Connections of an event loop that are being ended: "+
			"the client has quit or sent its last, and is still being answered.",
		func(l *reactor.LoopStats) float64 { return float64(l.Ending) }, "loop"),
	counter("beanstalkd_loop_connections_total", "Connections that were given to an event loop.",
		func(l *reactor.LoopStats) float64 { return float64(l.Opened) }, "loop"),
	counter("beanstalkd_loop_resumed_sessions_total",
		"Sessions that went on here under a new leader, with their clients and what those had reserved.",
		func(l *reactor.LoopStats) float64 { return float64(l.Resumed) }, "loop"),
	counter("beanstalkd_loop_repeated_answers_total",
		"Commands of these that were not executed, "+
			"but answered by what the log tells of what they had done under the leader before.",
		func(l *reactor.LoopStats) float64 { return float64(l.Repeated) }, "loop"),
	counter("beanstalkd_loop_attaches_total", "Times that a leader took the clients of a standby's event loop.",
		func(l *reactor.LoopStats) float64 { return float64(l.Attaches) }, "loop"),
	counter("beanstalkd_loop_attach_seconds_total", "How long this event loop had no leader before these times.",
		func(l *reactor.LoopStats) float64 { return l.Apart.Seconds() }, "loop"),
	gauge("beanstalkd_loop_contact_age_seconds",
		"Time since a standby's event loop sent the last ping that the leader has answered. "+
			"After 6 seconds its clients are reset. Shown by standbys.",
		func(l *reactor.LoopStats) float64 { return shownIf(l.Contact >= 0, l.Contact.Seconds()) }, "loop"),
	counter("beanstalkd_loop_received_bytes_total",
		"Bytes that an event loop has read from clients, on a leader also from those of standbys.",
		func(l *reactor.LoopStats) float64 { return float64(l.BytesIn) }, "loop"),
	counter("beanstalkd_loop_sent_bytes_total",
		"Bytes that an event loop has written to clients, on a leader also to those of standbys.",
		func(l *reactor.LoopStats) float64 { return float64(l.BytesOut) }, "loop"),
	counter("beanstalkd_loop_forwarding_received_bytes_total",
		"Bytes that an event loop has read from the connections on which standbys forward what their clients send.",
		func(l *reactor.LoopStats) float64 { return float64(l.TrunkIn) }, "loop"),
	counter("beanstalkd_loop_forwarding_sent_bytes_total", "Bytes that an event loop has written to these connections.",
		func(l *reactor.LoopStats) float64 { return float64(l.TrunkOut) }, "loop"),
	gauge("beanstalkd_loop_stalled_connections", "Connections whose clients do not read their replies fast enough.",
		func(l *reactor.LoopStats) float64 { return float64(l.Stalled) }, "loop"),
	counter("beanstalkd_loop_stalls_total", "Times that a client began not to read its replies fast enough.",
		func(l *reactor.LoopStats) float64 { return float64(l.Stalls) }, "loop"),
	gauge("beanstalkd_loop_pending_input_bytes", "Bytes that were read and wait to be executed.",
		func(l *reactor.LoopStats) float64 { return float64(l.PendingInput) }, "loop"),
	gauge("beanstalkd_loop_pending_output_bytes", "Bytes of replies that clients have not taken yet.",
		func(l *reactor.LoopStats) float64 { return float64(l.PendingOutput) }, "loop"),
}

func overLoops(count func(*reactor.LoopStats) uint64) func(*reactor.Stats) float64 {
	return func(s *reactor.Stats) float64 {
		sum := uint64(0)
		for i := range s.Loops {
			sum += count(&s.Loops[i])
		}
		return float64(sum)
	}
}

func collectReactor(ch chan<- prometheus.Metric, s *reactor.Stats) {
	reactorMetrics.collect(ch, s)
	for i := range s.Loops {
		loopMetrics.collect(ch, &s.Loops[i], label("loop", strconv.Itoa(i)))
	}
}
