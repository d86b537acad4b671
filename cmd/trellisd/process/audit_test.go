package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestTheAuditTrailIsInTheLogAndInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	s := servertest.Start(t, "--audit-file", path, "--auth-file", servertest.AuthFile(t, servertest.TokenLine("anna", "one", "all", "a*"), servertest.TokenLine("ops", "token-two", "all", "*")))
	a, o := s.Dial(0), s.Dial(0)
	a.Send("auth one", "use a", "put 0 0 60 6", "secret", "flush-tube a", "flush-tube b", "drain")
	a.Want("AUTHENTICATED", "USING a", "INSERTED 1", "FLUSHED 1", "UNKNOWN_COMMAND", "UNKNOWN_COMMAND")
	o.Send("use auth/token-two", "set-dlq a 3 dead", "drain", "undrain")
	o.Want("USING default", "DLQ_SET", "DRAINING", "NOT_DRAINING")
	wrong := s.Dial(0)
	wrong.Send("auth token-three")
	wrong.Want("UNAUTHORIZED")
	here, there := a.Conn.LocalAddr().String(), o.Conn.LocalAddr().String()
	want := []string{
		`"msg":"client authenticated","audit":true,"peer":"` + here + `","client":"anna"`,
		`"msg":"command done","audit":true,"client":"anna","peer":"` + here + `","command":"flush-tube","tube":"a","result":"FLUSHED 1"`,
		`"msg":"command denied","audit":true,"client":"anna","peer":"` + here + `","command":"flush-tube","tube":"b","result":"UNKNOWN_COMMAND"`,
		`"msg":"command denied","audit":true,"client":"anna","peer":"` + here + `","command":"drain","result":"UNKNOWN_COMMAND"`,
		`"msg":"command done","audit":true,"client":"ops","peer":"` + there + `","command":"set-dlq","tube":"a","to":"dead","result":"DLQ_SET"`,
		`"msg":"command done","audit":true,"client":"ops","peer":"` + there + `","command":"drain","result":"DRAINING"`,
		`"msg":"client refused","audit":true,"peer":"` + wrong.Conn.LocalAddr().String() + `","reason":"wrong token"`,
	}
	for _, w := range want {
		s.WaitText(w)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b, err := os.ReadFile(path)
	servertest.NoError(t, err)
	for _, w := range want {
		if !strings.Contains(string(b), w) {
			t.Errorf("the file lacks %s", w)
		}
	}
	for _, text := range []string{string(b), strings.Join(s.Log(), "\n")} {
		for _, hidden := range []string{"secret", "token-t"} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s is told:\n%s", hidden, text)
			}
		}
	}
}

func TestAnAuditFileThatCannotBeMadeEndsTheStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nosuch", "audit")
	p := servertest.Launch(t, "-l127.0.0.1", "-p0", "--audit-file", path)
	if code := p.Wait(); code != servertest.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	if log := p.Log(); len(log) != 1 || !strings.Contains(log[0], "--audit-file: open "+path) {
		t.Errorf("logged %q", log)
	}
}
