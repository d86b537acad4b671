package options

import "crypto/tls"

// flags declares the flags about TLS.
func (t *TLS) flags(value func(long, short string, set func(string) error)) {
	value("tls-listen", "", func(v string) error {
		if v == "" {
			return usagef("empty address for --tls-listen; give a host, an IP address or unix:PATH")
		}
		t.Listen = append(t.Listen, v)
		return nil
	})
	file := func(flag string, name *string) {
		value(flag, "", func(v string) error {
			if v == "" {
				return usagef("empty path for --%s; give that of a PEM file", flag)
			}
			*name = v
			return nil
		})
	}
	file("tls-cert", &t.Cert)
	file("tls-key", &t.Key)
	file("tls-client-ca", &t.ClientCA)
	value("tls-client-auth", "", func(v string) error {
		if v != "require" && v != "optional" {
			return usagef("unknown value for --tls-client-auth: %s; give require or optional", v)
		}
		t.Optional, t.clientAuth = v == "optional", true
		return nil
	})
	value("tls-min", "", func(v string) error {
		version, ok := tlsVersions[v]
		if !ok {
			return usagef("unknown version for --tls-min: %s; give 1.2 or 1.3", v)
		}
		t.MinVersion = version
		return nil
	})
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// check finds flags that need others which are not there.
func (t *TLS) check() error {
	switch {
	case t.Cert == "" && t.Key != "":
		return usagef("--tls-key without --tls-cert; give both")
	case t.Cert != "" && t.Key == "":
		return usagef("--tls-cert without --tls-key; give both")
	case t.Cert == "" && len(t.Listen) > 0:
		return usagef("--tls-listen without a certificate; give --tls-cert and --tls-key")
	case t.Cert == "" && t.ClientCA != "":
		return usagef("--tls-client-ca without a certificate; give --tls-cert and --tls-key")
	case t.ClientCA == "" && t.clientAuth:
		return usagef("--tls-client-auth without --tls-client-ca; give the authorities of the clients")
	}
	return nil
}
