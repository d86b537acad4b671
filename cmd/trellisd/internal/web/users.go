package web

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/crypto/bcrypt"

	"trellis/cmd/trellisd/internal/certs"
)

// protect lets requests through that the file allows.
func (p *Protection) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.limiter != nil && !p.limiter.Allow() {
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
			return
		}
		s := p.now()
		for k, v := range s.HTTPConfig.Header {
			w.Header().Set(k, v)
		}
		user, err := p.user(s, r)
		if errors.Is(err, errGuesses) {
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
			return
		}
		if err != nil {
			if s.password {
				w.Header().Set("WWW-Authenticate", "Basic")
			}
			if errors.Is(err, errCertificate) {
				w.Header().Set("Connection", "close") // another one needs another connection
			}
			http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
			return
		}
		if user != "" {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		}
		next.ServeHTTP(w, r)
	})
}

type userKey struct{}

// User is who makes a request: the name that has come with a password, or else the subject of
// the certificate, as far as the file asked for these when the request came. It returns false
// if it asked for neither: nobody has checked then what the request says.
func User(r *http.Request) (name string, ok bool) {
	name, ok = r.Context().Value(userKey{}).(string)
	return name, ok
}

var (
	errPassword    = errors.New("no name with its password")
	errCertificate = errors.New("no certificate that is good now")
	errGuesses     = errors.New("too many passwords at a time")
)

// user is who makes a request, "" if the state does not ask for that. The error says what is
// missing.
func (p *Protection) user(s *state, r *http.Request) (user string, err error) {
	if s.certificate {
		// It may have expired since the connection began, or the file may ask for another one.
		if user, err = s.subject(r.TLS.PeerCertificates); err != nil {
			return "", err
		}
	}
	if !s.password {
		return user, nil
	}
	name, password, ok := r.BasicAuth()
	if !ok {
		return "", errPassword
	}
	return name, p.comparePassword(s, name, password)
}

// subject is that of a certificate, which stands before those that lead to its authority.
func (s *state) subject(chain []*x509.Certificate) (string, error) {
	if len(chain) == 0 {
		return "", errCertificate
	}
	_, err := certs.VerifyClient(s.tls.ClientCAs, chain, time.Now())
	if err == nil && s.names {
		err = s.TLSConfig.VerifyPeerCertificate([][]byte{chain[0].Raw}, nil)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errCertificate, err)
	}
	return chain[0].Subject.String(), nil
}

// nobody is the hash of no password that is compared for names that there are not, so that
// these take as long.
const nobody = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

// maxGuesses is how many requests may have their passwords compared. One more is refused: whoever
// guesses must not keep all requests waiting that have passwords which were right before.
const maxGuesses = 8

// comparePassword fails unless a password is that of a name. One that was right is known again.
func (p *Protection) comparePassword(s *state, name, password string) error {
	hash, known := s.Users[name]
	if !known {
		hash = nobody
	}
	sum := sha256.Sum256([]byte(password))
	s.mu.Lock()
	right, found := s.right[name]
	s.mu.Unlock()
	if found && right == sum {
		return nil
	}
	if !p.guesses.TryAcquire(1) {
		return errGuesses
	}
	defer p.guesses.Release(1)
	p.comparing.Lock()
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password))
	p.comparing.Unlock()
	if err != nil || !known {
		return errPassword
	}
	s.mu.Lock()
	s.right[name] = sum
	s.mu.Unlock()
	return nil
}
