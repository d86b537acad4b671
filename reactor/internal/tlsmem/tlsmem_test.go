package tlsmem

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"trellis/reactor/tlstest"
)

// A handshake goes over a pipe, and what follows it over memory.
func TestAConnectionGoesOnInMemory(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	wire := &Wire{ReadWriter: here}
	ca := tlstest.NewAuthority("ca")
	server := tls.Server(wire, &tls.Config{Certificates: []tls.Certificate{ca.Issue(tlstest.Name, nil)}})
	done := make(chan error, 1)
	client := tls.Client(there, &tls.Config{RootCAs: ca.Pool, ServerName: tlstest.Name})
	go func() {
		err := client.Handshake()
		_, _ = io.Copy(io.Discard, there) // a ticket may follow
		done <- err
	}()
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	_ = here.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var m Memory
	wire.ReadWriter = &m
	p := make([]byte, 100)
	for range 2 { // a temporary error is none of the connection's
		if n, err := server.Read(p); n != 0 || err != ErrNoInput {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if _, err := io.WriteString(server, "hello"); err != nil || len(m.Sealed) == 0 {
		t.Fatalf("%d bytes are sealed: %v", len(m.Sealed), err)
	}
}
