package main

import (
	"bufio"
	"crypto/tls"
	"testing"
	"time"
)

// A member asks its clients who they are, over TLS too, like a server alone, in each of
// its offices.
func TestAMemberServesOnlyWhomItsFilesName(t *testing.T) {
	t.Parallel()
	files := newCertFiles(t)
	w := newTown(t, 1)
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
}
