//go:build proof

package process

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// opensslClient is an s_client of OpenSSL's.
type opensslClient struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	all strings.Builder // what was read
}

// opensslArgs are those with which s_client trusts a server.
func opensslArgs(f *servertest.CertFiles, s *servertest.Server, args ...string) []string {
	return append([]string{
		"s_client", "-connect", s.Addrs[0].String(), "-CAfile", f.CAFile, "-servername", "trellis.test", "-verify_return_error",
	}, args...)
}

// openssl starts an s_client, which ends with the test.
func openssl(t *testing.T, f *servertest.CertFiles, s *servertest.Server, args ...string) *opensslClient {
	t.Helper()
	cmd := exec.Command("openssl", opensslArgs(f, s, args...)...)
	in, err := cmd.StdinPipe()
	servertest.NoError(t, err)
	out, err := cmd.StdoutPipe()
	servertest.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		servertest.NeedPeer(t, "openssl: %v", err)
	}
	timer := time.AfterFunc(3*servertest.Patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &opensslClient{t: t, in: in, out: bufio.NewReader(out)}
}

func (c *opensslClient) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, text); err != nil {
		c.t.Fatalf("%v after\n%s", err, c.all.String())
	}
}

// until reads up to a text.
func (c *opensslClient) until(text string) {
	c.t.Helper()
	for begin := c.all.Len(); !strings.Contains(c.all.String()[begin:], text); {
		b, err := c.out.ReadByte()
		if err != nil {
			c.t.Fatalf("%q did not come:\n%s", text, c.all.String())
		}
		c.all.WriteByte(b)
	}
}

// rest reads to the end.
func (c *opensslClient) rest() string {
	b, _ := io.ReadAll(c.out)
	c.all.Write(b)
	return c.all.String()
}

func TestOpenSSLIsServedWithEverySuiteThatIsAccepted(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	for _, args := range []string{
		"-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256", "-tls1_2 -cipher ECDHE-ECDSA-AES256-GCM-SHA384",
		"-tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305",
		"-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256", "-tls1_3 -ciphersuites TLS_AES_256_GCM_SHA384",
		"-tls1_3 -ciphersuites TLS_CHACHA20_POLY1305_SHA256",
		"-tls1_3 -curves P-256", "-tls1_3 -curves P-384", "-tls1_3 -curves X25519", "-tls1_3 -max_send_frag 512",
	} {
		c := openssl(t, files, s, append(strings.Fields(args), "-quiet")...)
		c.send("use a\r\nlist-tube-used\r\nquit\r\n")
		if out := c.rest(); !strings.HasSuffix(out, "USING a\r\nUSING a\r\n") {
			t.Errorf("%s:\n%s", args, out)
		}
	}
}

func TestOpenSSLIsRefusedWithWhatIsOldOrWeak(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	for _, args := range []string{
		"-tls1 -cipher ALL:@SECLEVEL=0", "-tls1_1 -cipher ALL:@SECLEVEL=0",
		"-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0", "-tls1_2 -cipher ECDHE-ECDSA-AES256-SHA384:@SECLEVEL=0",
		"-tls1_2 -cipher AES128-GCM-SHA256:@SECLEVEL=0", "-tls1_2 -cipher AES128-SHA:@SECLEVEL=0",
		"-tls1_2 -cipher eNULL:@SECLEVEL=0", "-tls1_2 -cipher aNULL:@SECLEVEL=0", "-tls1_2 -cipher PSK:@SECLEVEL=0 -psk 00",
	} {
		c := openssl(t, files, s, append(strings.Fields(args), "-quiet")...)
		_, _ = io.WriteString(c.in, "list-tube-used\r\nquit\r\n")
		if out := c.rest(); strings.Contains(out, "USING") || !strings.Contains(out, "alert") && !strings.Contains(out, "no cipher match") &&
			!strings.Contains(out, "no protocols available") {
			t.Errorf("%s:\n%s", args, out)
		}
	}
	s.DialTLS(0, files.Client())
}

func TestKeysAreUpdatedWhenOpenSSLAsks(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	c := openssl(t, files, s, "-tls1_3")
	c.send("list-tube-used\r\n")
	c.until("USING default\r\n")
	for range 20 {
		for _, command := range []string{"K\n", "k\n"} { // with and without the server's
			c.send(command)
			c.until("KEYUPDATE")
			c.send("list-tube-used\r\n")
			c.until("USING default\r\n")
		}
	}
}

func TestARenegotiationIsRefused(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	c := openssl(t, files, s, "-tls1_2", "-legacy_renegotiation")
	c.send("list-tube-used\r\n")
	c.until("USING default\r\n")
	c.send("R\n")
	c.until("RENEGOTIATING")
	if out := c.rest(); !strings.Contains(out, "alert") && !strings.Contains(out, "error") {
		t.Errorf("got:\n%s", out)
	}
	s.DialTLS(0, files.Client())
}

func TestOpenSSLResumesAndItsEarlyDataIsRefused(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		session := filepath.Join(t.TempDir(), "session")
		c := openssl(t, files, s, version, "-sess_out", session)
		c.send("list-tube-used\r\n")
		c.until("USING default\r\n")
		c.send("quit\r\n")
		c.rest()
		c = openssl(t, files, s, version, "-sess_in", session)
		c.send("list-tube-used\r\n")
		c.until("USING default\r\n")
		c.send("quit\r\n")
		out := c.rest()
		if !strings.Contains(out, "Reused, TLS") {
			t.Errorf("%s: not resumed:\n%s", version, out)
		}
		if version == "-tls1_3" && strings.Contains(out, "Early data was accepted") {
			t.Errorf("early data was accepted:\n%s", out)
		}
	}
}

// What s_client has sent before the end of its input is answered: it says close_notify.
func TestOpenSSLMayHalfClose(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		c := openssl(t, files, s, version, "-quiet", "-no_ign_eof")
		c.send("use a\r\n")
		c.until("USING a\r\n")
		servertest.NoError(t, c.in.Close())
		c.rest()
	}
	good := s.DialTLS(0, files.Client())
	for deadline := time.Now().Add(servertest.Patience); !strings.Contains(good.Data("stats"), "\ncurrent-connections: 1\n"); {
		if time.Now().After(deadline) {
			t.Fatal("their connections are still there")
		}
	}
}
