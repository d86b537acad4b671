package servertest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TokenLine is a line of an authentication file for who has a token. An account may stand behind tubes.
func TokenLine(name, token, rights, tubes string) string {
	return fmt.Sprintf("%s sha256:%x %s %s\n", name, sha256.Sum256([]byte(token)), rights, tubes)
}

// AuthFile writes an authentication file and returns its path.
func AuthFile(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth")
	WriteAuthFile(t, path, lines...)
	return path
}

// WriteAuthFile replaces the file at once. A server may read it at any moment, and a disk may take
// seconds between emptying a file and filling it.
func WriteAuthFile(t testing.TB, path string, lines ...string) {
	t.Helper()
	NoError(t, os.WriteFile(path+".new", []byte(strings.Join(lines, "")), 0o600))
	NoError(t, os.Rename(path+".new", path))
}
