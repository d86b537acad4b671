package console

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"trellis/cmd/internal/client"
)

func TestAJobThatIsBuriedIsNotBuriedAgain(t *testing.T) {
	r := newRig(t, writable)
	id := r.bury("a", "x")
	wantText(t, r.do(fmt.Sprintf("/jobs/%d/bury", id)), "1 job buried")
	f, err := r.conn.StatsJob(t.Context(), id)
	if err != nil || f.Uint("reserves") != 1 || f.Uint("buries") != 1 {
		t.Errorf("reserved %d times, buried %d times, %v", f.Uint("reserves"), f.Uint("buries"), err)
	}
}

// A cutConn ends after the reply to the first reserve-job has been read.
type cutConn struct{ net.Conn }

func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 8)])
	if bytes.HasPrefix(p[:n], []byte("RESERVED")) {
		_ = c.Close()
	}
	return n, err
}

func TestAConnectionThatIsLostLeavesADelayedJobNotReady(t *testing.T) {
	r := newRig(t, writable)
	id := r.put("a", 7, 600, "x")
	dial := r.console.pool.dial
	r.console.pool.dial = func(ctx context.Context) (*client.Conn, error) {
		nc, err := r.reactor.Connect(ctx)
		return client.New(cutConn{nc}, "the server"), err
	}
	if a := r.post(fmt.Sprintf("/jobs/%d/bury", id), nil); a.StatusCode != http.StatusBadGateway {
		t.Fatalf("%s\n%s", a.Status, plain(a.text))
	}
	r.console.pool.dial = dial
	for r.state(id) == "reserved" && t.Context().Err() == nil { // until the server has heard of it
		time.Sleep(time.Millisecond)
	}
	if s := r.state(id); s != "buried" {
		t.Errorf("the job is %s", s)
	}
}
