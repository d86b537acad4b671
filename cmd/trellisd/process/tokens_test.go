//go:build proof

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestTokensAreMadeUsedAndReplacedAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	r := servertest.NewReader(t)
	s := r.Follow(servertest.DocumentLines(t, "tokens"))
	ping := func(token string) string {
		return fmt.Sprintf("trellis ping -a 127.0.0.1:11300 --token-file %s.token", token)
	}
	b, err := os.ReadFile(filepath.Join(r.Dir, "billing.token"))
	if err != nil {
		t.Fatal(err)
	}
	c := s.Dial(0)
	c.Send("use auth/"+strings.TrimSpace(string(b)), "use billing/mail", "put 0 0 60 5", "hello", "stats")
	c.Want("USING default", "USING billing/mail", "INSERTED 1", "UNKNOWN_COMMAND")

	rotation := servertest.DocumentLines(t, "rotation")
	if len(rotation) != 2 {
		t.Fatalf("%q", rotation)
	}
	r.Follow(rotation[:1])
	r.Until(ping("billing-2"), true)
	r.Until(ping("billing"), true)
	r.Follow(rotation[1:])
	c.WantEOF()
	r.Until(ping("billing"), false)
	r.Until(ping("billing-2"), true)
}
