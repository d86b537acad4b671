package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"strconv"
	"strings"

	"trellis/engine"
	"trellis/reactor/throttle"
)

const hashSize = sha256.Size

// An identity is the clients of one line of the file.
type identity struct {
	line
	grant *engine.Grant

	admissions throttle.Throttle // of lines in the log
}

// same reports whether two lines say the same of the same clients.
func (l *line) same(o *line) bool {
	return l.name == o.name && l.credential == o.credential && l.rights == o.rights && l.account == o.account &&
		strings.Join(l.tubes, ",") == strings.Join(o.tubes, ",")
}

// A roll is all identities of one state of the file. It does not change.
type roll struct {
	all          []*identity        // in the order of the file
	byCredential map[credential]int // of those known without a token: index in all
	tokens       map[hashStart][]*identity
}

// hashStart is the beginning of a token's hash, by which it is looked up. That the time
// for this depends on the hash tells nobody a token: nobody can choose the hash.
type hashStart [8]byte

func newRoll(all []*identity) *roll {
	r := &roll{all: all, byCredential: make(map[credential]int), tokens: make(map[hashStart][]*identity)}
	for i, id := range all {
		if id.kind != byToken {
			r.byCredential[id.credential] = i
			continue
		}
		start := hashStart([]byte(id.value))
		r.tokens[start] = append(r.tokens[start], id)
	}
	return r
}

// byToken returns whose token it is, nil if it is nobody's.
func (r *roll) byToken(token []byte) *identity {
	sum := sha256.Sum256(token)
	for _, id := range r.tokens[hashStart(sum[:])] {
		if subtle.ConstantTimeCompare(sum[:], []byte(id.value)) == 1 {
			return id
		}
	}
	return nil
}

// byConnection returns the identity of a client that needs no token, nil if the file has
// none. It goes by the state of the client's TLS connection, which may be nil, and by the
// user who has connected to a Unix socket, -1 if there is none.
func (r *roll) byConnection(state *tls.ConnectionState, uid int) *identity {
	var names []credential
	if uid >= 0 {
		names = append(names, credential{byUser, strconv.Itoa(uid)})
	}
	if c := verified(state); c != nil {
		names = append(names, namesOf(c)...)
	}
	first := len(r.all)
	for _, n := range names {
		if i, ok := r.byCredential[n]; ok {
			first = min(first, i)
		}
	}
	if first == len(r.all) {
		return nil
	}
	return r.all[first]
}

// verified returns the client's certificate if it has one that was verified.
func verified(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// namesOf returns the names in a certificate, in the form that credentials have.
func namesOf(c *x509.Certificate) (names []credential) {
	for _, n := range c.DNSNames {
		names = append(names, credential{byDNS, strings.ToLower(n)})
	}
	for _, n := range c.URIs {
		names = append(names, credential{byURI, n.String()})
	}
	for _, n := range c.EmailAddresses {
		names = append(names, credential{byEmail, n})
	}
	for _, n := range c.IPAddresses {
		if a, ok := netip.AddrFromSlice(n); ok {
			names = append(names, credential{byIP, a.Unmap().String()})
		}
	}
	if n := c.Subject.CommonName; n != "" {
		names = append(names, credential{byCN, n})
	}
	return names
}
