package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"trellis/bench"
)

const defaultAddr = "127.0.0.1"

// target is the server that a command speaks to, and how. The environment gives what
// the flags do not: TRELLIS_TLS, TRELLIS_CA, TRELLIS_CERT and TRELLIS_KEY.
type target struct {
	addr          string
	tls           bool
	ca, cert, key string // files

	// elsewhere: a second address, not addr, speaks TLS, and the files are needed for it even without --tls.
	elsewhere bool

	flags *pflag.FlagSet
}

func (t *target) register(f *pflag.FlagSet) {
	t.flags = f
	f.StringVarP(&t.addr, "addr", "a", defaultAddr,
		"the server: host, host:port or unix:/path; the port is 11300, or 11400 with --tls")
	f.BoolVar(&t.tls, "tls", false, "speak TLS (TRELLIS_TLS=1)")
	f.StringVar(&t.ca, "ca", "",
		"PEM file with the authorities that the server's certificate may be of (TRELLIS_CA; default: the system's)")
	f.StringVar(&t.cert, "cert", "", "PEM file with a certificate to show to the server (TRELLIS_CERT)")
	f.StringVar(&t.key, "key", "", "PEM file with its key (TRELLIS_KEY)")
}

// fromVariable sets a flag that was not given as a variable of the environment says, if there is one.
func fromVariable(flags *pflag.FlagSet, flag, variable string) error {
	value := os.Getenv(variable)
	if value == "" || flags.Changed(flag) {
		return nil
	}
	if err := flags.Lookup(flag).Value.Set(value); err != nil {
		return fmt.Errorf("%s=%s: %w", variable, value, err)
	}
	return nil
}

// fromEnvironment takes the address from TRELLIS_ADDR or BEANSTALKD_URL if no flag gives it.
func (t *target) fromEnvironment() {
	if t.flags.Changed("addr") {
		return
	}
	for _, name := range []string{"TRELLIS_ADDR", "BEANSTALKD_URL"} {
		if addr := os.Getenv(name); addr != "" {
			t.addr = trimURL(addr)
			return
		}
	}
}

// trimURL makes an address of a URL as libraries write it.
func trimURL(addr string) string {
	for _, scheme := range []string{"beanstalk://", "beanstalkd://"} {
		if rest, ok := strings.CutPrefix(addr, scheme); ok {
			return strings.TrimSuffix(rest, "/")
		}
	}
	return addr
}

// address is the server's address, with what TLS needs.
func (t *target) address() (bench.Address, error) {
	use, err := t.useTLS()
	if err != nil {
		return bench.Address{}, err
	}
	if !use {
		return bench.ParseAddress(t.addr)
	}
	config, err := t.config()
	if err != nil {
		return bench.Address{}, err
	}
	return bench.ParseTLSAddress(t.addr, config)
}

// useTLS reports whether to speak TLS. A flag about it is a mistake if nothing speaks TLS:
// whoever gives it would not want to be served in plain text.
func (t *target) useTLS() (bool, error) {
	use := t.tls
	if env := os.Getenv("TRELLIS_TLS"); env != "" && !t.flags.Changed("tls") {
		var err error
		if use, err = strconv.ParseBool(env); err != nil {
			return false, fmt.Errorf("TRELLIS_TLS=%s: give 1 or 0", env)
		}
	}
	for _, name := range []string{"ca", "cert", "key"} {
		if !use && !t.elsewhere && t.flags.Changed(name) {
			return false, fmt.Errorf("--%s without --tls", name)
		}
	}
	return use, nil
}

func (t *target) config() (*tls.Config, error) {
	err := errors.Join(fromVariable(t.flags, "ca", "TRELLIS_CA"), fromVariable(t.flags, "cert", "TRELLIS_CERT"),
		fromVariable(t.flags, "key", "TRELLIS_KEY"))
	if err != nil {
		return nil, err
	}
	config := new(tls.Config)
	if t.ca != "" {
		config.RootCAs = x509.NewCertPool()
		if err := addAuthorities(config.RootCAs, t.ca); err != nil {
			return nil, err
		}
	}
	switch {
	case t.cert == "" && t.key == "":
		return config, nil
	case t.cert == "" || t.key == "":
		return nil, errors.New("a certificate and its key are needed: give both --cert and --key")
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", t.cert, t.key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// addAuthorities adds the certificates of a PEM file.
func addAuthorities(pool *x509.CertPool, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: there is no certificate in it", file)
	}
	return nil
}
