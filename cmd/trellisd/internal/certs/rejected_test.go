package certs

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/reactor/tlstest"
)

// der is what a client sends in its handshake.
func der(c tls.Certificate) string {
	var all strings.Builder
	for _, b := range c.Certificate {
		all.Write(b)
	}
	return all.String()
}

func TestWhatANewAuthorityDoesNotAcceptIsRejected(t *testing.T) {
	r := newRig(t, true, Policy{})
	other := tlstest.NewAuthority("other")
	mine, theirs := der(r.ca.Issue("mine", nil)), der(other.Issue("theirs", nil))
	check := func(when string, want ...string) {
		t.Helper()
		rejected := r.Rejected([]string{mine, theirs})
		if got := slices.Sorted(maps.Keys(rejected)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %d are rejected, want %d: %v", when, len(got), len(want), rejected)
		}
		for _, err := range rejected {
			if !strings.Contains(err.Error(), `the certificate of "`) {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	check("the first authority", theirs)
	check("again", theirs)
	r.write(r.files.ClientCA, append(tlstest.CertPEM(r.ca.Cert), tlstest.CertPEM(other.Cert)...))
	r.reload("")
	check("both")
	r.write(r.files.ClientCA, tlstest.CertPEM(other.Cert))
	r.reload("")
	check("the second", mine)
	if got := r.Rejected([]string{"\x30\x00"}); len(got) != 1 {
		t.Errorf("what is no certificate: %v", got)
	}
}

func TestACertificateIsRejectedWhenItExpires(t *testing.T) {
	r := newRig(t, true, Policy{})
	short := r.ca.Issue("short", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Minute) })
	long := der(r.ca.Issue("long", nil))
	now := time.Now()
	r.now = func() time.Time { return now }
	for range 2 {
		if got := r.Rejected([]string{der(short), long}); len(got) != 0 {
			t.Fatalf("before its end: %v", got)
		}
	}
	now = short.Leaf.NotAfter.Add(time.Second)
	if got := r.Rejected([]string{der(short), long}); len(got) != 1 || got[der(short)] == nil {
		t.Errorf("after its end: %v", got)
	}
	if len(r.verified) != 1 {
		t.Errorf("%d are remembered", len(r.verified))
	}
}

func BenchmarkRejected(b *testing.B) {
	r := tlstest.NewAuthority("authority")
	s := New(Files{ClientCA: "ca"}, Policy{}, nil)
	g := &generation{config: &tls.Config{ClientCAs: r.Pool}}
	s.newest.Store(g)
	all := make([]string, 1000)
	for i := range all {
		all[i] = der(r.Issue("client", nil))
	}
	for name, forget := range map[string]bool{"after a reload": true, "each minute": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if forget {
					s.verifiedBy = nil
				}
				if got := s.Rejected(all); len(got) != 0 {
					b.Fatal(got)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/certificate")
		})
	}
}
