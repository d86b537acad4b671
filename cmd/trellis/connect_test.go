package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheServerIsNamedByFlagOrEnvironment(t *testing.T) {
	t.Parallel()
	addr := quiet(t)
	const nobody = "127.0.0.1:1"
	for _, tt := range []struct {
		args string
		env  []string
		ok   bool
	}{
		{args: "-a " + addr, ok: true},
		{env: []string{"TRELLIS_ADDR=" + addr}, ok: true},
		{env: []string{"BEANSTALKD_URL=" + addr}, ok: true},
		{env: []string{"BEANSTALKD_URL=beanstalk://" + addr + "/"}, ok: true},
		{env: []string{"BEANSTALKD_URL=beanstalkd://" + addr}, ok: true},
		{env: []string{"BEANSTALKD_URL=tcp://" + addr}, ok: true},
		{env: []string{"TRELLIS_ADDR=" + addr, "BEANSTALKD_URL=" + nobody}, ok: true},
		{env: []string{"TRELLIS_ADDR=" + nobody, "BEANSTALKD_URL=" + addr}},
		{args: "-a " + addr, env: []string{"TRELLIS_ADDR=" + nobody}, ok: true},
		{args: "-a " + nobody, env: []string{"TRELLIS_ADDR=" + addr}},
	} {
		env := append([]string{"TRELLIS_ADDR=", "BEANSTALKD_URL="}, tt.env...)
		_, errs, status := trellisIn(t, env, append([]string{"stats"}, strings.Fields(tt.args)...)...)
		if want := map[bool]int{true: 0, false: 3}[tt.ok]; status != want || !tt.ok && !strings.Contains(errs, nobody) {
			t.Errorf("%+v: status %d\n%s", tt, status, errs)
		}
	}
}

func TestTimeoutAndOutputHaveTheirDefaultsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	mute := fake(t, map[string]string{"stats": ""})
	addr := fake(t, map[string]string{"list-tubes": "{OK}---\n- a\n", "stats-tube a": "{OK}---\nname: a\n"})
	for _, tt := range []struct {
		env, args, want string
		status          int
	}{
		{"TRELLIS_OUTPUT=ndjson", "tubes -a " + addr, `{"name":"a"}`, 0},
		{"TRELLIS_OUTPUT=ndjson", "tubes -o yaml -a " + addr, `- name: "a"`, 0},
		{"TRELLIS_OUTPUT=xml", "tubes -a " + addr, `not "xml"`, exitUsage},
		{"TRELLIS_TIMEOUT=50ms", "stats -a " + mute, "silent for 50ms", exitUnreachable},
		{"TRELLIS_TIMEOUT=1h", "stats --timeout 60ms -a " + mute, "silent for 60ms", exitUnreachable},
		{"TRELLIS_TIMEOUT=5", "stats -a " + addr, "TRELLIS_TIMEOUT=5: ", exitUsage},
		{"TRELLIS_TIMEOUT=0s", "console", "--timeout is to be above zero", exitUsage},
		{"TRELLIS_TIMEOUT=x", "mcp", "TRELLIS_TIMEOUT=x: ", exitUsage},
	} {
		out, errs, status := trellisIn(t, []string{tt.env}, strings.Fields(tt.args)...)
		if status != tt.status || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s, %s: status %d, %s%s", tt.env, tt.args, status, out, errs)
		}
	}
}

func TestTroubleWithTheConnectionIsOneLineThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	closing := serveEach(t, listen(t), func(net.Conn) {})
	talking := serveEach(t, listen(t), func(c net.Conn) {
		_, _ = io.WriteString(c, "USING default\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	tlsAddr, _, _, _ := answeringTLS(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("tr_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	web := fake(t, map[string]string{"list-tubes": "HTTP/1.1 400 Bad Request\r\n"})
	mute := fake(t, map[string]string{"list-tubes": ""})
	huge := fake(t, map[string]string{"list-tubes": "OK 99999999999\r\n"})
	const nobody = "127.0.0.1:1"
	for _, tt := range []struct {
		addr, args, want string
		status           int
	}{
		{nobody, "", ": connection refused; is a server running there?", 3},
		{"unix:/nonexistent", "", "/nonexistent: no such file or directory; is a server running there?", 3},
		{closing, "", "the server has closed the connection; does it want --tls, or a token", 3},
		{web, "", "not a reply of the beanstalkd protocol; is it a beanstalkd", 3},
		{huge, "", "a body of 99999999999 bytes, and the limit is", 3},
		{mute, "--timeout 50ms", ": silent for 50ms; --timeout gives it longer", 3},
		{talking, "--tls", "; does it speak TLS on this port?", 3},
		{tlsAddr, "--tls", "; --ca names the authorities", 3},
		{web, "--token-file " + token, `does not take the token: it does not know it, or wants none: it answers "UNKNOWN_COMMAND"`, 4},
		{"nonsense nonsense", "", "address", 2},
		{nobody, "--token-file /nonexistent", "/nonexistent", 2},
		{nobody, "--tls --ca /nonexistent", "/nonexistent", 2},
	} {
		out, errs, status := trellis(t, append([]string{"tubes", "-a", tt.addr}, strings.Fields(tt.args)...)...)
		if status != tt.status || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tt.want) {
			t.Errorf("%+v: status %d\n%s%s", tt, status, out, errs)
		}
		if tt.status == 3 && !strings.Contains(errs, tt.addr+": ") {
			t.Errorf("%s is not named: %s", tt.addr, errs)
		}
	}
}

func TestATokenIsOfferedBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("tr_right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fake(t, map[string]string{"auth tr_right": "AUTHENTICATED\r\n", "stats": "{OK}---\nuptime: 5\n"})
	out, errs, status := trellis(t, "stats", "-a", addr, "--token-file", token)
	if status != 0 || !strings.Contains(out, "uptime  5 s") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

func TestAServerWithAnAuthenticationFileWantsAToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, auth := filepath.Join(dir, "token"), filepath.Join(dir, "auth")
	credential, _, status := trellis(t, "token", "new", token)
	if status != 0 {
		t.Fatal(status)
	}
	if err := os.WriteFile(auth, []byte("reader "+strings.TrimSpace(credential)+" read *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := "unix:" + startTrellisd(t, "--auth-file", auth)
	for _, tt := range []struct {
		args, want string
		status     int
	}{
		{"tubes", "; if it wants a token, give --token-file", 4},
		{"jobs default", "the server wants a token: give --token-file", 4},
		{"jobs default --token-file " + token, "there is no such job", 1},
		{"pause default --token-file " + token, "this client has no right to it\n", 4},
		{"stats --token-file " + token, "", 0},
	} {
		_, errs, status := trellis(t, append(strings.Fields(tt.args), "-a", addr)...)
		if status != tt.status || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: status %d, want %d and %q\n%s", tt.args, status, tt.status, tt.want, errs)
		}
	}
}

func TestAnInterruptedCommandEndsAtOnce(t *testing.T) {
	t.Parallel()
	l := listen(t)
	defer l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "stats", "-a", l.Addr().String(), "--timeout", "1h")
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := bufio.NewReader(server).ReadString('\n'); err != nil { // now it waits for the reply
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted || errs.String() != "trellis: "+l.Addr().String()+": interrupted\n" {
		t.Errorf("%v, %q", cmd.ProcessState, errs.String())
	}
}
