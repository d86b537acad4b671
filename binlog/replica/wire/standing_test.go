package wire

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/replica/wire/wiretest"
)

// A connection that stands ends when the authority of the other side is trusted no more.
func TestConnectionsEndWithTheirAuthority(t *testing.T) {
	ours, next := wiretest.NewAuthority(t, "ours"), wiretest.NewAuthority(t, "next")
	cfg := load(t, ours.Issue(time.Now().Add(time.Hour), "127.0.0.1"), ours)
	ns := nodes(t, 2, setup{timing: patient, tls: func(int) *Credentials { return cfg }, change: func(_ int, n *node, _ *Config) { n.take = discard }})
	meet(t, ns...)
	judged := func() bool {
		roots := cfg.now().roots
		for _, n := range ns {
			n.tr.mu.Lock()
			defer n.tr.mu.Unlock()
			for s := range n.tr.standing {
				if s.checked.Load() != roots {
					return false
				}
			}
		}
		return true
	}
	fresh := authorities(t, next)
	trust(t, ours, append(authorities(t, ours), fresh...))
	eventually(t, "connections are judged anew", judged)
	for _, n := range ns {
		if strings.Contains(n.log.String(), "the authorities have changed") {
			t.Errorf("%s ends a connection whose authority is still trusted:\n%s", n.self.Name, n.log)
		}
	}
	trust(t, ours, fresh)
	for _, n := range ns {
		eventually(t, n.self.Name+" ends its connections", func() bool {
			n.tr.mu.Lock()
			defer n.tr.mu.Unlock()
			return len(n.tr.standing) == 0
		})
	}
	// Whichever node looks first says why.
	eventually(t, "somebody says why", func() bool {
		return strings.Contains(ns[0].log.String()+ns[1].log.String(), "the authorities have changed: x509: certificate signed by unknown authority")
	})
}

// Who is refused is in the log, beside why.
func TestARequestThatIsDeniedIsLogged(t *testing.T) {
	ours := wiretest.NewAuthority(t, "ours")
	soon := time.Now().Add(time.Hour)
	mine := load(t, ours.Issue(soon, "127.0.0.1"), ours)
	from := make(chan Caller, 1)
	deny := func(context.Context, []byte) ([]byte, error) { return nil, fmt.Errorf("remove: %w", (<-from).Admin) }
	ns := nodes(t, 1, setup{timing: patient, tls: func(int) *Credentials { return mine }, change: func(_ int, n *node, _ *Config) { n.callers, n.control = from, deny }})
	_, err := Call(t.Context(), asks(load(t, ours.Issue(soon, "web.example"), ours)), ns[0].self.Addr, []byte("{}"))
	if err == nil {
		t.Fatal("it was not denied")
	}
	eventually(t, "it is logged", func() bool {
		return strings.Contains(ns[0].log.String(), "remove: the certificate of web.example is no administrator's")
	})
}
