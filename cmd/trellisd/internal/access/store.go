package access

import (
	"log/slog"
	"sync/atomic"

	"trellis/cmd/trellisd/internal/reload"
	"trellis/engine"
	"trellis/engine/account"
	"trellis/reactor"
)

// Store knows the clients that a file names. It is a [reactor.Access]; any goroutine may
// call its methods, but Load only one at a time.
type Store struct {
	path   string
	audit  audit
	loaded bool // Load was called, to which it belongs
	roll   atomic.Pointer[roll]

	// Accounts are those of the file.
	Accounts account.Accounts
	accounts map[string]account.Tubes // what Accounts was told last, by name; Load's
}

// New makes a store that knows nobody. The path is that of the file, for messages.
func New(path string, log *slog.Logger) *Store {
	s := &Store{path: path, audit: audit{log: log}}
	s.roll.Store(newRoll(nil))
	return s
}

// Load puts in force what is in the file, except for lines with a mistake: they admit nobody.
// So what is gone from the file is revoked whatever stands beside it. The error, a
// [*reload.PartialError], has all mistakes, each a [*FileError]. gone tells which grants are in
// force no more: [reactor.Server.Revoke] ends their connections.
//
// A file that names no client admits nobody. For the first Load that is a mistake.
func (s *Store) Load(content []byte) (gone func(*engine.Grant) bool, err error) {
	file := parse(s.path, content)
	accounts := s.loadAccounts(&file.accounts)
	file.findAccounts(accounts)
	if len(file.mistakes) == 0 && len(file.lines) == 0 && !s.loaded {
		file.mistakes = append(file.mistakes, &FileError{s.path, 0, "it names no client, so that nobody could do anything"})
	}
	if len(file.mistakes) > 0 {
		err = &reload.PartialError{Mistakes: file.mistakes}
	}
	s.loaded = true
	old := make(map[credential]*identity)
	for _, id := range s.roll.Load().all {
		old[id.credential] = id
	}
	var all []*identity
	kept := make(map[*engine.Grant]bool)
	for _, l := range file.lines {
		id := old[l.credential]
		if id == nil || !id.same(&l) {
			id = &identity{line: l, grant: engine.NewGrant(l.name, l.rights, l.tubes).In(l.account)}
		}
		kept[id.grant] = true
		all = append(all, id)
	}
	s.roll.Store(newRoll(all))
	return func(g *engine.Grant) bool { return !kept[g] }, err
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
