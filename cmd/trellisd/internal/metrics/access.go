package metrics

import (
	"trellis/cmd/trellisd/internal/access"
	"trellis/cmd/trellisd/internal/audit"
	"trellis/cmd/trellisd/internal/reload"
)

var accessMetrics = list[access.Stats]{
	counter("beanstalkd_authenticated_connections_total", "Connections of clients that the authentication file names.",
		func(s access.Stats) float64 { return float64(s.Authenticated) }),
	counters("reason", "beanstalkd_authentication_failures_total",
		"Connections that were closed because their client is not known: token, the token is nobody's; "+
			"command, something else came before a token; timeout, nothing came in time.", by[access.Stats]{
			{"token", func(s access.Stats) float64 { return float64(s.BadToken) }},
			{"command", func(s access.Stats) float64 { return float64(s.NoToken) }},
			{"timeout", func(s access.Stats) float64 { return float64(s.Silent) }},
		}),
}

var auditMetrics = list[audit.Stats]{
	counter("beanstalkd_denied_commands_total",
		"Commands that a client had no right to, or that named a job in a tube of others.",
		func(s audit.Stats) float64 { return float64(s.Denied) }),
	counter("beanstalkd_audit_unreported_total",
		"Commands of which the audit trail has only the number, because a client gave very many.",
		func(s audit.Stats) float64 { return float64(s.Unreported) }),
	counter("beanstalkd_audit_lost_total",
		"Lines of the audit trail that could not be written, because the disk or the log was too slow or failed.",
		func(s audit.Stats) float64 { return float64(s.Lost) }),
}

// reloadMetrics show what has become of files that are loaded again when they change.
var reloadMetrics = list[reload.Stats]{
	counters("result", "beanstalkd_reloads_total",
		"Changes of files that were loaded while the server ran, or that could not be: auth-file; certificates, "+
			"with the key and the authorities of clients.", by[reload.Stats]{
			{"loaded", func(s reload.Stats) float64 { return float64(s.Loaded) }},
			{"failed", func(s reload.Stats) float64 { return float64(s.Failed) }},
		}, "file"),
	counter("beanstalkd_reload_mistakes_total",
		"Lines with a mistake in changes of files that were loaded without them, which count as failed.",
		func(s reload.Stats) float64 { return float64(s.Mistakes) }, "file"),
	gauge("beanstalkd_reload_failing",
		"1 while the last change of files could not be loaded, or not as a whole; 0 otherwise.",
		func(s reload.Stats) float64 { return oneIf(s.Failing) }, "file"),
}
