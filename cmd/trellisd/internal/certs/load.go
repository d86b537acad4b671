package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// Files are the names of PEM files.
type Files struct {
	Cert     string // the server's certificate, and behind it those that lead to its authority
	Key      string // its key
	ClientCA string // certificates of the authorities of clients; empty: clients are not asked for certificates
}

// generation is what was loaded together. It does not change.
type generation struct {
	config   *tls.Config
	leaf     *x509.Certificate
	clientCA []*x509.Certificate
}

// paths are the names of the files that are configured, in the order that load wants.
func (f *Files) paths() []string {
	if f.ClientCA == "" {
		return []string{f.Cert, f.Key}
	}
	return []string{f.Cert, f.Key, f.ClientCA}
}

// load makes a generation of what is in the files. An error names the file, and the line
// if it lies in one.
func (f *Files) load(contents [][]byte, now time.Time) (*generation, error) {
	cert, key := contents[0], contents[1]
	g := new(generation)
	chain, err := certificates(f.Cert, cert)
	if err != nil {
		return nil, err
	}
	g.leaf = chain[0]
	if err := checkTime(f.Cert, g.leaf, now); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, f.pairError(key, err)
	}
	pair.Leaf = g.leaf
	g.config = &tls.Config{Certificates: []tls.Certificate{pair}}
	if f.ClientCA == "" {
		return g, nil
	}
	if g.clientCA, err = certificates(f.ClientCA, contents[2]); err != nil {
		return nil, err
	}
	g.config.ClientCAs = x509.NewCertPool()
	var first error
	valid := 0
	for _, ca := range g.clientCA {
		err := checkTime(f.ClientCA, ca, now)
		if err == nil && ca.BasicConstraintsValid && !ca.IsCA {
			err = fmt.Errorf("%s: the certificate of %q is not that of an authority", f.ClientCA, subject(ca))
		}
		if err == nil {
			valid++
			g.config.ClientCAs.AddCert(ca)
		} else if first == nil {
			first = err
		}
	}
	if valid == 0 {
		return nil, first
	}
	return g, nil
}

// certificates returns those in a file's text, at least one, or an error that names the
// file.
func certificates(name string, text []byte) (all []*x509.Certificate, err error) {
	for rest := text; ; {
		block, behind := pem.Decode(rest)
		if block == nil {
			break
		}
		// Where the block begins, blanks and notes before it left aside.
		end := len(text) - len(behind)
		begin := bytes.LastIndex(text[:end], []byte("-----BEGIN "))
		rest = behind
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, line(text, begin), err)
		}
		all = append(all, cert)
	}
	if len(all) > 0 {
		return all, nil
	}
	if at := bytes.Index(text, []byte("-----BEGIN CERTIFICATE")); at >= 0 {
		return nil, fmt.Errorf("%s: line %d: the certificate is damaged", name, line(text, at))
	}
	return nil, fmt.Errorf("%s: there is no certificate in it (PEM, -----BEGIN CERTIFICATE-----)", name)
}

// line is the number of the line in which the byte at lies.
func line(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

func checkTime(name string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("%s: the certificate of %q has expired at %s",
			name, subject(c), c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s: the certificate of %q is not valid before %s",
			name, subject(c), c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

func subject(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	}
	return c.Subject.String()
}

// pairError says which file is to blame for an error of tls.X509KeyPair.
func (f *Files) pairError(key []byte, err error) error {
	block, _ := pem.Decode(key)
	switch {
	case block == nil:
		return fmt.Errorf("%s: there is no private key in it (PEM, -----BEGIN PRIVATE KEY-----)", f.Key)
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
		return fmt.Errorf("%s: the key is encrypted; decrypt it: openssl pkey -in %s", f.Key, f.Key)
	case strings.Contains(err.Error(), "does not match"):
		return fmt.Errorf("%s: the key does not belong to the certificate in %s", f.Key, f.Cert)
	}
	return fmt.Errorf("%s: %w", f.Key, err)
}
