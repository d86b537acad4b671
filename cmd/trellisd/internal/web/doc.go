// Package web is the server's HTTP side: metrics for Prometheus, health for
// service managers and load balancers, and profiles for developers.
//
//	/metrics       everything that is measured
//	/healthz       200 while the process is alive
//	/readyz        200 while it accepts jobs; else 503 and the reason
//	/leaderz       the same of the leader of a cluster alone; its other members say who leads
//	/debug/pprof/  profiles, if the operator wants them
//	/              the console, if there is one; it looks after its own safety
//
// A file in the format of Prometheus's exporters may ask for TLS, and for names and
// passwords. It is read for each request and each handshake. A protection that it once had stays
// until the server ends, as do HTTP/2 and the rate limit; a file that is empty, gone or wrong
// changes nothing. /healthz, /readyz and /leaderz need no password: what they tell is no secret, and a
// probe has none. Nor do they mind under which name they are asked; all else is answered under
// names of this host only. Without such a file the server belongs on a loopback address.
//
// What clients may cost is bounded: time-outs for every step, few connections, requests and
// scrapes at a time, small headers. Requests for health have connections that no others can take.
package web
