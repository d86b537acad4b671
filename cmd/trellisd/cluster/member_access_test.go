//go:build proof

package cluster

import (
	"bufio"
	"crypto/tls"
	"runtime"
	"strings"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// A member that does not lead has the files of clients and all jobs too, and alerts ask for them.
func TestAMemberThatServesNobodyShowsItsFilesAndItsMemoryLimit(t *testing.T) {
	t.Parallel()
	w := clustertest.NewCluster(t, 3)
	n := w.Nodes[0]
	n.Args = append(servertest.NewCertFiles(t).Flags(), "--auth-file="+servertest.AuthFile(t, servertest.TokenLine("all", "right", "all", "*")))
	n.Start("--cluster=" + w.List) // and no other one, so that nobody leads
	body := servertest.Scrape(t, "http://"+n.HTTP)
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
	clustertest.Undisturbed(t, 1, func(t testing.TB, w *clustertest.Cluster) {
		files := servertest.NewCertFiles(t)
		n := w.Nodes[0]
		n.Args = append(files.Flags(), "--auth-file="+servertest.AuthFile(t, servertest.TokenLine("all", "right", "all", "*")))
		dial := func() *servertest.Client {
			conn, err := tls.Dial("tcp", n.Last("listening"), files.Client()) // the socket for TLS is opened last
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetDeadline(time.Now().Add(clustertest.ElectionPatience)); err != nil {
				t.Fatal(err)
			}
			return &servertest.Client{T: t, Conn: conn, In: bufio.NewReader(conn)}
		}
		n.Start("--cluster=" + w.List)
		for _, reply := range []string{"INSERTED 1", "INSERTED 2"} {
			w.Leader()
			n.Process.WaitText(`"msg":"ready"`)
			stranger, friend := dial(), dial()
			stranger.Send("put 0 0 60 1", "x")
			stranger.Want("UNKNOWN_COMMAND")
			stranger.WantEOF()
			friend.Send("use auth/right", "put 0 0 60 1", "x")
			friend.Want("USING default", reply)
			n.Kill()
			n.Start()
		}
	})
}
