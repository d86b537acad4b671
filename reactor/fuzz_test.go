package reactor

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"trellis/engine/script"
)

// FuzzServer sends arbitrary bytes, cut into reads anywhere, over a socket to a
// whole server. Whatever they are, the server answers other clients, has forgotten
// all of the client when it has gone, and has not panicked.
func FuzzServer(f *testing.F) {
	for i, c := range script.Corpus() {
		if i%10 != 0 && few {
			continue
		}
		if in := c.Input(); len(in) < 64<<10 {
			f.Add(in, uint8(0), true)
		}
	}
	for _, seed := range []string{
		"put 0 0 60 70000\r\n", "put 0 0 60 2000000\r\nx", "reserve\r\nreserve\r\nquit\r\n", "kick 4294967295\r\n\x00\r\n",
		"put 0 0 1 0\r\n\r\nreserve-with-timeout 0\r\nrelease 1 0 0\r\nreserve-job 1\r\nbury 1 0\r\nkick-job 1\r\n",
	} {
		f.Add([]byte(seed), uint8(3), false)
		f.Add([]byte(seed), uint8(1), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint8, polite bool) {
		ts := serve(t, "unix", 2, hooks{})
		witness, c := ts.dial(), ts.dial()
		replies := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(c)
			replies <- b
		}()
		feed(c, in, cut)
		if !polite { // it goes without a word, and perhaps unread replies
			c.Close()
			<-replies
		} else {
			// All that it has sent is executed and answered, and what waits ends.
			_ = c.Conn.(*net.UnixConn).CloseWrite()
			b := <-replies
			if n := bytes.Count(in, []byte("\r\n")); len(b) > 0 && n == 0 {
				t.Errorf("replies without a command: %.100q", b)
			}
			if len(b) > 0 && !bytes.HasSuffix(b, []byte("\r\n")) {
				t.Errorf("the last reply is cut: %.100q", b[max(0, len(b)-100):])
			}
		}
		witness.do("use witness\r\n", "USING witness\r\n")
		ts.until("the client is forgotten", func() bool {
			s, e, a := ts.sum(), ts.engine.Snapshot(ts.cfg.Now()), ts.Stats()
			return a.Accepted+a.Refused == 2 && s.Connections == 1 && e.Connections == 1 && e.Waiting == 0 && e.Reserved == 0 && ts.acceptor.Stats().Places == 1
		})
		s, e := ts.sum(), ts.engine.Snapshot(ts.cfg.Now())
		if s.Panics+s.OverLimit+s.OverOutput+s.Cut != 0 || s.PendingInput+s.PendingOutput+s.Stalled+s.Ending != 0 {
			t.Errorf("%+v", s)
		}
		if e.Producers+e.Workers != 0 || e.Opened != ts.Stats().Accepted || uint64(e.Ready+e.Delayed+e.Buried) > e.Puts {
			t.Errorf("%+v", e)
		}
	})
}

// feed writes in, in pieces of cut bytes if that is not 0, for as long as the
// server takes it.
func feed(c *client, in []byte, cut uint8) {
	_ = c.SetWriteDeadline(time.Now().Add(testTimeout))
	for cut > 0 && len(in) > 0 {
		n := min(int(cut), len(in))
		if _, err := c.Write(in[:n]); err != nil {
			return
		}
		in = in[n:]
	}
	_, _ = c.Write(in)
}
