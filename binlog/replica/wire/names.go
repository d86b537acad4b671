package wire

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"trellis/binlog/replica/member"
)

// CheckPattern reports whether names in certificates can be compared with a pattern. A pattern
// is a DNS name, an IP address or a URI, or CN= and the common name of the subject. A *
// stands for any characters but a slash, as package path has it.
func CheckPattern(pattern string) error {
	_, err := path.Match(pattern, "")
	return err
}

// matches reports whether a certificate has a name that one of the patterns means.
func matches(cert *x509.Certificate, patterns []string) bool {
	names := namesOf(cert)
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if cert.VerifyHostname(pattern) == nil {
			return true // also a certificate with a * of its own
		}
		pattern = strings.ToLower(pattern)
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(pattern, strings.ToLower(name))
			return ok && err == nil
		})
	})
}

// namesOf are the names in a certificate, as patterns mean them.
func namesOf(cert *x509.Certificate) (names []string) {
	names = append(names, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	if cn := cert.Subject.CommonName; cn != "" {
		names = append(names, "CN="+cn)
	}
	return names
}

// nameOf is the first name in a certificate, for people.
func nameOf(cert *x509.Certificate) string {
	names := namesOf(cert)
	if len(names) == 0 {
		return "certificate " + cert.SerialNumber.Text(16)
	}
	return printable([]byte(names[0][:min(len(names[0]), 80)]))
}

// hostOf is the host of a member's address.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// certificateOf is the certificate that the other side has proved to hold.
func certificateOf(c *tls.Conn) *x509.Certificate { return c.ConnectionState().PeerCertificates[0] }

// checkMember says why a certificate is no member's, nil if it is one. Hosts are those that
// it may be for, where no names of members were given.
func (c *Credentials) checkMember(cert *x509.Certificate, hosts ...string) error {
	switch {
	case cert == nil: // members speak without TLS
		return nil
	case len(c.MemberNames) > 0 && matches(cert, c.MemberNames):
		return nil
	case len(c.MemberNames) > 0:
		return fmt.Errorf("the certificate of %s is no member's: none of --cluster-allowed-name names it", nameOf(cert))
	case slices.ContainsFunc(hosts, func(host string) bool { return cert.VerifyHostname(host) == nil }):
		return nil
	case len(hosts) == 1:
		return fmt.Errorf("the certificate of %s is not for %s, the host in the member's address", nameOf(cert), hosts[0])
	}
	return fmt.Errorf("the certificate of %s is for no member's host that is known here; "+
		"name it in --cluster or --cluster-allowed-name", nameOf(cert))
}

// checkAdmin says why a certificate is no administrator's, nil if it is one.
func (c *Credentials) checkAdmin(cert *x509.Certificate, hosts ...string) error {
	switch {
	case cert == nil:
		return nil
	case len(c.AdminNames) > 0 && matches(cert, c.AdminNames):
		return nil
	case len(c.AdminNames) == 0 && c.checkMember(cert, hosts...) == nil:
		return nil
	}
	name := nameOf(cert)
	return fmt.Errorf("the certificate of %s is no administrator's: "+
		"start the members with --cluster-admin-name %s, or use a certificate that is", name, name)
}

// Caller is who sends a control request.
type Caller struct {
	Name string // in its certificate; "" without TLS

	// Member and Admin say why it is no member, or no administrator; nil if it is one.
	// Without TLS everybody is both.
	Member, Admin error
}

// caller is who sends a control request, by a certificate that may be nil.
func (t *Transport) caller(cert *x509.Certificate) (c Caller) {
	if cert == nil {
		return c
	}
	t.mu.Lock()
	hosts := t.hosts()
	t.mu.Unlock()
	return Caller{nameOf(cert), t.cfg.TLS.checkMember(cert, hosts...), t.cfg.TLS.checkAdmin(cert, hosts...)}
}

// checkSender says why a hello's certificate is not one of the member that it names, nil if it
// is. The caller holds t.mu.
func (t *Transport) checkSender(h hello) error {
	if p := t.members.Load().peers[h.from.ID]; p != nil && p.newcomer == 0 {
		return t.cfg.TLS.checkMember(h.cert, hostOf(p.Addr))
	}
	return t.cfg.TLS.checkMember(h.cert, t.hosts()...)
}

// hosts are those for which a member's certificate may be. The caller holds t.mu.
func (t *Transport) hosts() (hosts []string) {
	ms := t.members.Load()
	for _, n := range t.cfg.Nodes {
		hosts = append(hosts, hostOf(n.Addr))
	}
	for _, m := range t.announced {
		hosts = append(hosts, hostOf(m.Addr))
	}
	for _, p := range ms.peers {
		if p.newcomer == 0 {
			hosts = append(hosts, hostOf(p.Addr))
		}
	}
	if ms.self.ID != 0 {
		hosts = append(hosts, hostOf(ms.self.Addr))
	}
	return hosts
}

// Announce names members of whom this node has heard otherwise than by SetPeers: what they
// say is taken although this node has not applied yet that they were added. They take the
// place of those announced before.
func (t *Transport) Announce(ms []member.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announced = ms
}
