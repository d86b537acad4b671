package options

import "crypto/tls"

// TLS is how clients are served that speak it.
type TLS struct {
	Listen     []string // every --tls-listen, in order
	Cert, Key  string   // files
	ClientCA   string   // file; empty: clients are not asked for certificates
	Optional   bool     // clients without a certificate are served too
	MinVersion uint16   // as crypto/tls numbers it
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// checkTLS finds flags that need others which are not there.
func (c *commandLine) checkTLS() error {
	t := &c.TLS
	switch {
	case t.Cert == "" && t.Key != "":
		return usagef("--tls-key without --tls-cert; give both")
	case t.Cert != "" && t.Key == "":
		return usagef("--tls-cert without --tls-key; give both")
	case t.Cert == "" && len(t.Listen) > 0:
		return usagef("--tls-listen without a certificate; give --tls-cert and --tls-key")
	case t.Cert == "" && t.ClientCA != "":
		return usagef("--tls-client-ca without a certificate; give --tls-cert and --tls-key")
	case t.ClientCA == "" && c.Changed("tls-client-auth"):
		return usagef("--tls-client-auth without --tls-client-ca; give the authorities of the clients")
	}
	return nil
}
