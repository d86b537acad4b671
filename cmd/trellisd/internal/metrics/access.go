package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"trellis/cmd/trellisd/internal/access"
	"trellis/cmd/trellisd/internal/reload"
)

var (
	authenticated = counter("beanstalkd_authenticated_connections_total",
		"Connections of clients that the authentication file names.")
	authFailures = counter("beanstalkd_authentication_failures_total",
		"Connections that were closed because their client is not known: token, the token is nobody's; "+
			"command, something else came before a token; timeout, nothing came in time.", "reason")
	deniedCommands = counter("beanstalkd_denied_commands_total",
		"Commands that a client had no right to, or that named a job in a tube of others.")
	reloads = counter("beanstalkd_reloads_total",
		"Changes of files that were loaded while the server ran, or that could not be: auth-file; certificates, "+
			"with the key and the authorities of clients.", "file", "result")
	reloadFailing = gauge("beanstalkd_reload_failing",
		"1 while the last change of files could not be loaded, and what was loaded before is in force; 0 otherwise.", "file")
)

var (
	failureToken   = label("reason", "token")
	failureCommand = label("reason", "command")
	failureTimeout = label("reason", "timeout")

	reloadLoaded = label("result", "loaded")
	reloadFailed = label("result", "failed")
)

func collectAccess(ch chan<- prometheus.Metric, s access.Stats) {
	ch <- authenticated.with(float64(s.Authenticated))
	ch <- authFailures.with(float64(s.BadToken), failureToken)
	ch <- authFailures.with(float64(s.NoToken), failureCommand)
	ch <- authFailures.with(float64(s.Silent), failureTimeout)
	ch <- deniedCommands.with(float64(s.Denied))
}

// collectReload shows what has become of files that are loaded again when they change.
func collectReload(ch chan<- prometheus.Metric, s reload.Stats) {
	file := label("file", s.What)
	ch <- reloads.with(float64(s.Loaded), file, reloadLoaded)
	ch <- reloads.with(float64(s.Failed), file, reloadFailed)
	ch <- reloadFailing.with(oneIf(s.Failing), file)
}
