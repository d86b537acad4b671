package main

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trellis/bench"
)

// tokenEnv names the file with the token for commands that connect, where no flag does.
const tokenEnv = "TRELLIS_TOKEN_FILE"

// tokenPrefix begins all tokens, so that one in the wrong place is recognized, and is not
// taken for its hash.
const tokenPrefix = "tr_"

func tokenCommand() *cobra.Command {
	return commands(&cobra.Command{
		Use:   "token",
		Short: "Make tokens for clients of a server that has an authentication file",
		Long: `Make tokens for clients of a server that has an authentication file: see trellisd --auth-file. A client
sends the token, and the file has what the token can be checked by, its credential.`,
	}, newTokenCommand())
}

func newTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new [FILE]",
		Short: "Make a token",
		Long: `Make a token of 256 random bits.

With FILE, the token is written there, for the client, and only its credential is printed, which goes into
the file of trellisd --auth-file. FILE must not exist; nobody else can read it. Without FILE, both are printed.`,
		Example: `  echo "billing $(trellis token new billing.token) put,work billing/*" >>/etc/trellis/auth`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			token := newToken()
			out := cmd.OutOrStdout()
			if len(args) == 0 {
				_, err := fmt.Fprintf(out, "token       %s\ncredential  %s\n", token, credentialOf(token))
				return err
			}
			if err := writeToken(args[0], token); err != nil {
				return err
			}
			_, err := fmt.Fprintln(out, credentialOf(token))
			return err
		},
	}
}

func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// credentialOf is what an authentication file has instead of a token.
func credentialOf(token string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token)))
}

func writeToken(path, token string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, token+"\n")
	return errors.Join(err, f.Close())
}

const maxTokenFile = 4096

// readSmall reads a file, but at most one byte more than the limit.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

type tokenFlag struct {
	path     string
	insecure bool
	none     bool // there is none, whatever the environment says
}

func (t *tokenFlag) register(f *pflag.FlagSet) {
	f.StringVar(&t.path, "token-file", "", "a file with the token to authenticate with (default $"+tokenEnv+")")
	f.BoolVar(&t.insecure, "insecure-token", false,
		"send the token also where others can read it on the way: to another machine without --tls")
}

// readFor returns the token for a server, "" if none is to be used. It is an error if others could
// read it on its way there, unless the user wants it so.
func (t *tokenFlag) readFor(a *bench.Address) (string, error) {
	token, err := t.read()
	if err == nil && token != "" && !t.insecure && a.TLS() == nil && a.Network == "tcp" && !a.TCP().Addr().IsLoopback() {
		err = fmt.Errorf("%s: the token is not sent there without TLS, as others could read it on the way: "+
			"give --tls, or --insecure-token if nobody else is on that network", a)
	}
	return token, err
}

// read returns the token, "" if none is to be used.
func (t *tokenFlag) read() (string, error) {
	path := cmp.Or(t.path, os.Getenv(tokenEnv))
	if path == "" || t.none {
		return "", nil
	}
	b, err := readSmall(path, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxTokenFile ||
		strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("reading the token: %s does not hold one word", path)
	}
	return token, nil
}
