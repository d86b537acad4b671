// Package web is the server's HTTP side: metrics for Prometheus, health for
// service managers and load balancers, and profiles for developers.
//
//	/metrics       everything that is measured
//	/healthz       200 while the process is alive
//	/readyz        200 while it accepts jobs; else 503 and the reason
//	/debug/pprof/  profiles, if the operator wants them
//	/              the console, if there is one; it looks after its own safety
//
// A file in the format of Prometheus's exporters may ask for TLS, and for names and
// passwords. The toolkit reads it again with each request and each handshake; only whether
// there is TLS at all, HTTP/2 and the rate limit stay as they were at the start. /healthz and
// /readyz need no password: what they tell is no secret, and a probe has none. Without such a
// file the server belongs on a loopback address. What clients may cost is bounded: time-outs
// for every step, few connections and scrapes at a time, small headers.
package web
