package access

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"sync/atomic"

	"trellis/reactor"
	"trellis/reactor/throttle"
)

// Stats count what has happened since the server began to serve.
type Stats struct {
	Authenticated uint64 // connections whose client was known, or has sent a token that is right
	BadToken      uint64 // connections closed because the token was nobody's
	NoToken       uint64 // because something else was sent than a token
	Silent        uint64 // because no line was sent in time, or before others needed the connection
}

// audit counts and logs who is served and who is not.
type audit struct {
	log *slog.Logger

	admissions  atomic.Uint64
	refusals    [numReasons]atomic.Uint64
	refusalLogs [numReasons]throttle.Throttle
}

type reason uint8

const (
	badToken reason = iota
	noToken
	silent
	numReasons
)

func (r reason) String() string {
	return [numReasons]string{badToken: "wrong token", noToken: "a command before a token", silent: "no token in time"}[r]
}

func (a *audit) admitted(id *identity, p *reactor.Peer) {
	a.admissions.Add(1)
	n, ok := id.admissions.Allow()
	if !ok {
		return
	}
	a.log.Info("client authenticated",
		append(about(p), "client", id.name, "by", strings.TrimSuffix(string(id.kind), ":"), "unreported", n)...)
}

func (a *audit) refused(p *reactor.Peer, why reason) {
	a.refusals[why].Add(1)
	if n, ok := a.refusalLogs[why].Allow(); ok {
		a.log.Warn("client refused", append(about(p), "reason", why.String(), "unreported", n)...)
	}
}

func (a *audit) stats() Stats {
	return Stats{
		Authenticated: a.admissions.Load(),
		BadToken:      a.refusals[badToken].Load(),
		NoToken:       a.refusals[noToken].Load(),
		Silent:        a.refusals[silent].Load(),
	}
}

func about(p *reactor.Peer) (attrs []any) {
	attrs = append(attrs, "peer", p.Addr)
	if p.UID >= 0 {
		attrs = append(attrs, "uid", p.UID)
	}
	if p.TLS != nil {
		attrs = append(attrs, "tls", tls.VersionName(p.TLS.Version))
	}
	if c := verified(p.TLS); c != nil {
		var names []string
		for _, n := range namesOf(c) {
			names = append(names, strings.TrimPrefix(string(n.kind), "cert:")+n.value)
		}
		attrs = append(attrs, "san", strings.Join(names, ","))
	}
	return attrs
}
