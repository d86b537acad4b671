package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTheAuditTrailIsInTheLogAndInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	s := start(t, "--audit-file", path, "--auth-file", authFile(t, tokenLine("anna", "one", "all", "a*"), tokenLine("ops", "token-two", "all", "*")))
	a, o := s.dial(0), s.dial(0)
	a.send("auth one", "use a", "put 0 0 60 6", "secret", "flush-tube a", "flush-tube b", "drain")
	a.want("AUTHENTICATED", "USING a", "INSERTED 1", "FLUSHED 1", "UNKNOWN_COMMAND", "UNKNOWN_COMMAND")
	o.send("use auth/token-two", "set-dlq a 3 dead", "drain", "undrain")
	o.want("USING default", "DLQ_SET", "DRAINING", "NOT_DRAINING")
	wrong := s.dial(0)
	wrong.send("auth token-three")
	wrong.want("UNAUTHORIZED")
	here, there := a.conn.LocalAddr().String(), o.conn.LocalAddr().String()
	want := []string{
		`"msg":"client authenticated","audit":true,"peer":"` + here + `","client":"anna"`,
		`"msg":"command done","audit":true,"client":"anna","peer":"` + here + `","command":"flush-tube","tube":"a","result":"FLUSHED 1"`,
		`"msg":"command denied","audit":true,"client":"anna","peer":"` + here + `","command":"flush-tube","tube":"b","result":"UNKNOWN_COMMAND"`,
		`"msg":"command denied","audit":true,"client":"anna","peer":"` + here + `","command":"drain","result":"UNKNOWN_COMMAND"`,
		`"msg":"command done","audit":true,"client":"ops","peer":"` + there + `","command":"set-dlq","tube":"a","to":"dead","result":"DLQ_SET"`,
		`"msg":"command done","audit":true,"client":"ops","peer":"` + there + `","command":"drain","result":"DRAINING"`,
		`"msg":"client refused","audit":true,"peer":"` + wrong.conn.LocalAddr().String() + `","reason":"wrong token"`,
	}
	for _, w := range want {
		s.waitText(w)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b, err := os.ReadFile(path)
	no(t, err)
	for _, w := range want {
		if !strings.Contains(string(b), w) {
			t.Errorf("the file lacks %s", w)
		}
	}
	for _, text := range []string{string(b), strings.Join(s.log(), "\n")} {
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
	p := launch(t, "-l127.0.0.1", "-p0", "--audit-file", path)
	if code := p.wait(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if log := p.log(); len(log) != 1 || !strings.Contains(log[0], "--audit-file: open "+path) {
		t.Errorf("logged %q", log)
	}
}
