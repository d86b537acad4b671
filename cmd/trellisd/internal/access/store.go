package access

import (
	"log/slog"
	"sync/atomic"

	"trellis/engine"
	"trellis/reactor"
)

// Store knows the clients that a file names. It is a [reactor.Access]; any goroutine may
// call its methods, but Load only one at a time.
type Store struct {
	path  string
	audit audit
	roll  atomic.Pointer[roll]
}

// New makes a store that knows nobody. The path is that of the file, for messages.
func New(path string, log *slog.Logger) *Store {
	s := &Store{path: path, audit: audit{log: log}}
	s.roll.Store(newRoll(nil))
	return s
}

// Load takes what is in the file. The error, a *FileError, names the line; then what was
// loaded before stays. gone tells which grants are in force no more: their connections are
// to be ended, which [reactor.Server.Revoke] does.
func (s *Store) Load(content []byte) (gone func(*engine.Grant) bool, err error) {
	lines, err := parse(s.path, content)
	if err != nil {
		return nil, err
	}
	old := make(map[credential]*identity)
	for _, id := range s.roll.Load().all {
		old[id.credential] = id
	}
	var all []*identity
	kept := make(map[*engine.Grant]bool)
	for _, l := range lines {
		id := old[l.credential]
		if id == nil || !id.same(&l) {
			id = newIdentity(l, &s.audit)
		}
		kept[id.grant] = true
		all = append(all, id)
	}
	s.roll.Store(newRoll(all))
	return func(g *engine.Grant) bool { return !kept[g] }, nil
}

// Identify implements [reactor.Access].
func (s *Store) Identify(p *reactor.Peer) *engine.Grant {
	id := s.roll.Load().byConnection(p.TLS, p.UID)
	if id == nil {
		return nil
	}
	s.audit.admitted(id, p)
	return id.grant
}

// Authenticate implements [reactor.Access].
func (s *Store) Authenticate(p *reactor.Peer, token []byte) *engine.Grant {
	id := s.roll.Load().byToken(token)
	if id == nil {
		s.audit.refused(p, badToken)
		return nil
	}
	s.audit.admitted(id, p)
	return id.grant
}

// Refused implements [reactor.Access].
func (s *Store) Refused(p *reactor.Peer, why reactor.Refusal) {
	switch why {
	case reactor.RefusedSilent, reactor.RefusedCrowded:
		s.audit.refused(p, silent)
	default:
		s.audit.refused(p, noToken)
	}
}

// Stats returns what the store has counted. Any goroutine may call it.
func (s *Store) Stats() Stats { return s.audit.stats() }
