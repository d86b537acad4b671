package metrics

import (
	"trellis/cmd/trellisd/internal/access"
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
	counter("beanstalkd_denied_commands_total",
		"Commands that a client had no right to, or that named a job in a tube of others.",
		func(s access.Stats) float64 { return float64(s.Denied) }),
}

// reloadMetrics show what has become of files that are loaded again when they change.
var reloadMetrics = list[reload.Stats]{
	counters("result", "beanstalkd_reloads_total",
		"Changes of files that were loaded while the server ran, or that could not be: auth-file; certificates, "+
			"with the key and the authorities of clients.", by[reload.Stats]{
			{"loaded", func(s reload.Stats) float64 { return float64(s.Loaded) }},
			{"failed", func(s reload.Stats) float64 { return float64(s.Failed) }},
		}, "file"),
	gauge("beanstalkd_reload_failing",
		"1 while the last change of files could not be loaded, and what was loaded before is in force; 0 otherwise.",
		func(s reload.Stats) float64 { return oneIf(s.Failing) }, "file"),
}
