// Package web is the server's HTTP side: metrics for Prometheus, health for
// service managers and load balancers, and profiles for developers.
//
//	/metrics       everything that is measured
//	/healthz       200 while the process is alive
//	/readyz        200 while it accepts jobs; else 503 and the reason
//	/debug/pprof/  profiles, if the operator wants them
//
// It has no authentication and belongs on a loopback address or behind something
// that has. What clients may cost is bounded: time-outs for every step, few
// connections and scrapes at a time, small headers.
package web
