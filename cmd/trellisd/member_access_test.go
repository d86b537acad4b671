//go:build proof

package main

import (
	"bufio"
	"crypto/tls"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A member that does not lead has the files of clients and all jobs too, and alerts ask for them.
func TestAMemberThatServesNobodyShowsItsFilesAndItsMemoryLimit(t *testing.T) {
	t.Parallel()
	w := newTown(t, 3)
	n := w.nodes[0]
	n.args = append(newCertFiles(t).flags(), "--auth-file="+authFile(t, tokenLine("all", "right", "all", "*")))
	n.start("--cluster=" + w.list) // and no other one, so that nobody leads
	body := scrape(t, "http://"+n.http)
	wants := []string{
		`beanstalkd_reload_failing{file="auth-file"} 0`,
		`beanstalkd_reload_failing{file="certificates"} 0`,
		`beanstalkd_tls_certificate_expiry_timestamp_seconds{certificate="server"} `,
	}
	if runtime.GOOS == "linux" {
		wants = append(wants, "beanstalkd_process_memory_limit_bytes ")
	}
	for _, want := range wants {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("not shown: %s", want)
		}
	}
}

// A member asks its clients who they are, over TLS too, like a server alone, in each of
// its leaderships.
func TestAMemberServesOnlyWhomItsFilesName(t *testing.T) {
	t.Parallel()
	undisturbed(t, 1, func(t testing.TB, w *town) {
		files := newCertFiles(t)
		n := w.nodes[0]
		n.args = append(files.flags(), "--auth-file="+authFile(t, tokenLine("all", "right", "all", "*")))
		dial := func() *client {
			conn, err := tls.Dial("tcp", n.last("listening"), files.client()) // the socket for TLS is opened last
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetDeadline(time.Now().Add(electionPatience)); err != nil {
				t.Fatal(err)
			}
			return &client{t, conn, bufio.NewReader(conn)}
		}
		n.start("--cluster=" + w.list)
		for _, reply := range []string{"INSERTED 1", "INSERTED 2"} {
			w.leader()
			n.p.waitText(`"msg":"ready"`)
			stranger, friend := dial(), dial()
			stranger.send("put 0 0 60 1", "x")
			stranger.want("UNKNOWN_COMMAND")
			stranger.wantEOF()
			friend.send("use auth/right", "put 0 0 60 1", "x")
			friend.want("USING default", reply)
			n.kill()
			n.start()
		}
	})
}
