package process

import (
	"bytes"
	be "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// Types of records and of messages, versions, extensions and alerts that these tests
// speak of. RFC 5246 and RFC 8446; heartbeats are RFC 6520.
const (
	recordCCS, recordAlert, recordHandshake, recordHeartbeat = 20, 21, 22, 24

	messageServerHello = 2

	version10, version11, version12 = 0x301, 0x302, 0x303

	extensionGroups, extensionHeartbeat, extensionMasterSecret = 10, 15, 23
	extensionTicket, extensionRenegotiation                    = 35, 0xff01

	alertUnexpected, alertOverflow, alertFailure = 10, 22, 40
	alertIllegal, alertVersion, alertFallback    = 47, 70, 86
)

// rawHello is a client's hello for versions up to TLS 1.2, in which everything can be
// said that an attacker would say.
type rawHello struct {
	version      uint16
	session      []byte
	suites       []uint16
	compressions []byte
	extensions   map[uint16][]byte // beside those that any client sends
}

// goodSuites are what the server accepts from a client with TLS 1.2.
var goodSuites = []uint16{0xc02b, 0xc02c, 0xcca9}

// goodHello is one that is answered.
func goodHello() *rawHello {
	return &rawHello{version: version12, suites: slices.Clone(goodSuites), compressions: []byte{0}, extensions: map[uint16][]byte{
		extensionGroups: {0, 2, 0, 23}, // P-256
		11:              {1, 0},        // points are not compressed
		13:              {0, 2, 4, 3},  // ECDSA with P-256 and SHA-256
	}}
}

// record is the hello as it is sent.
func (h *rawHello) record() []byte {
	var exts []byte
	for id, data := range h.extensions {
		exts = be.BigEndian.AppendUint16(exts, id)
		exts = be.BigEndian.AppendUint16(exts, uint16(len(data)))
		exts = append(exts, data...)
	}
	body := be.BigEndian.AppendUint16(nil, h.version)
	body = append(body, bytes.Repeat([]byte{'r'}, 32)...) // the random
	body = append(append(body, byte(len(h.session))), h.session...)
	body = be.BigEndian.AppendUint16(body, uint16(2*len(h.suites)))
	for _, s := range h.suites {
		body = be.BigEndian.AppendUint16(body, s)
	}
	body = append(append(body, byte(len(h.compressions))), h.compressions...)
	if len(exts) > 0 {
		body = append(be.BigEndian.AppendUint16(body, uint16(len(exts))), exts...)
	}
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return rawRecord(recordHandshake, version10, message)
}

func rawRecord(kind byte, version uint16, payload []byte) []byte {
	r := be.BigEndian.AppendUint16([]byte{kind}, version)
	return append(be.BigEndian.AppendUint16(r, uint16(len(payload))), payload...)
}

// serverHello is the server's answer.
type serverHello struct {
	version     uint16
	random      []byte
	session     []byte
	suite       uint16
	compression byte
	extensions  []uint16
}

func parseServerHello(b []byte) (h serverHello, err error) {
	defer func() {
		if r := recover(); r != nil { // an index
			err = fmt.Errorf("a malformed hello %x: %v", b, r)
		}
	}()
	b = b[4:]
	h.version, h.random, b = be.BigEndian.Uint16(b), b[2:34], b[34:]
	h.session, b = b[1:1+b[0]], b[1+b[0]:]
	h.suite, h.compression, b = be.BigEndian.Uint16(b), b[2], b[3:]
	if len(b) == 0 {
		return h, nil
	}
	for b = b[2:]; len(b) > 0; b = b[4+be.BigEndian.Uint16(b[2:]):] {
		h.extensions = append(h.extensions, be.BigEndian.Uint16(b))
	}
	return h, nil
}

// rawClient is a connection on which a test makes up all records.
type rawClient struct {
	t    *testing.T
	conn net.Conn
}

func dialRaw(t *testing.T, s *servertest.Server) *rawClient {
	t.Helper()
	c, err := net.Dial(s.Addrs[0].Network(), s.Addrs[0].String())
	servertest.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	servertest.NoError(t, c.SetDeadline(time.Now().Add(servertest.Patience)))
	return &rawClient{t, c}
}

func (c *rawClient) send(b []byte) *rawClient {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// next reads a record. At the end there is none, and kind is 0.
func (c *rawClient) next() (kind byte, payload []byte) {
	c.t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		// A server that is late to close has not read everything.
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			c.t.Fatal(err)
		}
		return 0, nil
	}
	payload = make([]byte, be.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(c.conn, payload); err != nil {
		c.t.Fatal(err)
	}
	return head[0], payload
}

// wantHello reads the server's hello.
func (c *rawClient) wantHello() serverHello {
	c.t.Helper()
	kind, b := c.next()
	if kind != recordHandshake || b[0] != messageServerHello {
		c.t.Fatalf("got a record of type %d: %x", kind, b)
	}
	h, err := parseServerHello(b[:4+int(b[2])<<8+int(b[3])])
	servertest.NoError(c.t, err)
	return h
}

// wantAlert reads records up to an alert, which must be the last, and one of these.
func (c *rawClient) wantAlert(alerts ...byte) {
	c.t.Helper()
	for {
		kind, b := c.next()
		switch kind {
		case recordHandshake: // what the server said before
			continue
		case recordAlert:
		default:
			c.t.Fatalf("got a record of type %d: %x; want an alert", kind, b)
		}
		if len(b) != 2 || b[0] != 2 || !slices.Contains(alerts, b[1]) {
			c.t.Fatalf("got the alert %v; want one of %v", b, alerts)
		}
		break
	}
	if kind, b := c.next(); kind != 0 {
		c.t.Fatalf("got a record of type %d behind the alert: %x", kind, b)
	}
}

// The checks of testssl.sh, and some more, each by the bytes that an attacker would send.
func TestNoneOfTheKnownWeaknessesOfTLSIsThere(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	s := servertest.StartTLS(t, files.Flags()...)
	with := func(change func(*rawHello)) []byte {
		h := goodHello()
		change(h)
		return h.record()
	}
	suites := func(all ...uint16) []byte { return with(func(h *rawHello) { h.suites = all }) }
	version := func(v uint16) []byte {
		return with(func(h *rawHello) { h.version, h.suites = v, append(h.suites, 0xc009, 0xc013, 0x002f, 0x000a, 0x0005) })
	}
	for _, tt := range []struct {
		name   string
		hello  []byte
		alerts []byte
	}{
		{"SSLv2 (DROWN)", append([]byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10}, make([]byte, 37)...), []byte{alertVersion, alertUnexpected}},
		{"SSLv3 (POODLE)", version(0x300), []byte{alertVersion}},
		{"TLS 1.0 (BEAST)", version(version10), []byte{alertVersion}},
		{"TLS 1.1", version(version11), []byte{alertVersion}},
		{"without encryption", suites(0x0001, 0x0002, 0x003b, 0xc001, 0xc006, 0xc00b, 0xc010), []byte{alertFailure}},
		{"without authentication", suites(0x0018, 0x001b, 0x0034, 0x003a, 0x006c, 0x00a6, 0xc016, 0xc017, 0xc018, 0xc019), []byte{alertFailure}},
		{"for export (FREAK, LOGJAM)", suites(0x0003, 0x0006, 0x0008, 0x000b, 0x000e, 0x0011, 0x0014, 0x0017, 0x0019), []byte{alertFailure}},
		{"with RC4 or DES", suites(0x0004, 0x0005, 0x0009, 0x000c, 0x0012, 0x0015, 0x001a, 0xc002, 0xc007, 0xc00c, 0xc011), []byte{alertFailure}},
		{"with blocks of 64 bits (SWEET32)", suites(0x0007, 0x000a, 0x000d, 0x0013, 0x0016, 0xc003, 0xc008, 0xc00d, 0xc012), []byte{alertFailure}},
		{"with CBC (LUCKY13)", suites(0x002f, 0x0035, 0x003c, 0x003d, 0x0041, 0x0067, 0x006b, 0xc004, 0xc009, 0xc00a, 0xc013, 0xc014, 0xc023, 0xc024, 0xc027, 0xc028), []byte{alertFailure}},
		{"with RSA key transport (ROBOT)", suites(0x009c, 0x009d, 0xc09c, 0xc09d, 0x002f, 0x0035), []byte{alertFailure}},
		{"with DHE (LOGJAM, RACCOON)", suites(0x009e, 0x009f, 0x0033, 0x0039, 0xc09e, 0xccaa), []byte{alertFailure}},
		{"with a key that is shared before", suites(0x00a8, 0x00a9, 0x008c, 0xccab, 0xccac), []byte{alertFailure}},
		{"only with compression (CRIME)", with(func(h *rawHello) { h.compressions = []byte{1} }), []byte{alertIllegal, alertFailure}},
		{"on small curves", with(func(h *rawHello) { h.extensions[extensionGroups] = []byte{0, 6, 0, 1, 0, 19, 0, 21} }), []byte{alertFailure}},
		{"after a fallback (TLS_FALLBACK_SCSV)", with(func(h *rawHello) { h.suites = append(h.suites, 0x5600) }), []byte{alertFallback}},
		{"with a renegotiation that nobody knows of", with(func(h *rawHello) { h.extensions[extensionRenegotiation] = []byte{2, 'x', 'y'} }), []byte{alertFailure}},
		{"in a record that is too long", append([]byte{recordHandshake, 3, 1, 0x48, 1}, make([]byte, 0x4801)...), []byte{alertOverflow}},
		{"with a heartbeat first (Heartbleed)", rawRecord(recordHeartbeat, version12, []byte{1, 0x40, 0, 'x'}), []byte{alertUnexpected}},
		{"with another message first", rawRecord(recordHandshake, version12, []byte{16, 0, 0, 1, 0}), []byte{alertUnexpected}},
	} {
		t.Run(tt.name, func(t *testing.T) { dialRaw(t, s).send(tt.hello).wantAlert(tt.alerts...) })
	}

	t.Run("compression is not chosen", func(t *testing.T) {
		if h := dialRaw(t, s).send(with(func(h *rawHello) { h.compressions = []byte{1, 64, 0} })).wantHello(); h.compression != 0 {
			t.Errorf("got %+v", h)
		}
	})
	t.Run("what is answered", func(t *testing.T) {
		h := dialRaw(t, s).send(with(func(h *rawHello) {
			h.suites = append([]uint16{0x1a1a, 0xc013}, h.suites...) // what nobody knows, and what is weak, before the good
			for _, id := range []uint16{extensionMasterSecret, extensionTicket, 0x2a2a} {
				h.extensions[id] = nil
			}
			h.extensions[extensionHeartbeat] = []byte{1}
			h.extensions[extensionRenegotiation] = []byte{0}
		})).wantHello()
		if h.version != version12 || !slices.Contains(goodSuites, h.suite) {
			t.Errorf("got %+v", h)
		}
		for id, want := range map[uint16]bool{
			extensionMasterSecret: true, extensionTicket: true, extensionRenegotiation: true, extensionHeartbeat: false, 0x2a2a: false,
		} {
			if slices.Contains(h.extensions, id) != want {
				t.Errorf("extension %d: in the answer %v", id, !want)
			}
		}
		if !bytes.HasSuffix(h.random, []byte("DOWNGRD\x01")) { // RFC 8446, section 4.1.3
			t.Errorf("a client of TLS 1.3 could not tell that it was talked down: %x", h.random)
		}
	})
	t.Run("a session's number is not longer than it was (Ticketbleed)", func(t *testing.T) {
		h := dialRaw(t, s).send(with(func(h *rawHello) {
			h.session = []byte{'s'}
			h.extensions[extensionTicket] = bytes.Repeat([]byte{'t'}, 192)
		})).wantHello()
		if len(h.session) > 0 && string(h.session) != "s" {
			t.Errorf("got %q", h.session)
		}
	})
	for name, record := range map[string][]byte{
		"a change of keys before there are any (CCS)": rawRecord(recordCCS, version12, []byte{1}),
		"a heartbeat in the handshake (Heartbleed)":   rawRecord(recordHeartbeat, version12, []byte{1, 0xff, 0xff}),
		"data in the handshake":                       rawRecord(23, version12, []byte("stats\r\n")),
		"a second hello":                              rawRecord(recordHandshake, version12, goodHello().record()[5:]),
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, s).send(goodHello().record())
			c.wantHello()
			c.send(record).wantAlert(alertUnexpected)
		})
	}
	s.DialTLS(0, files.Client())
}
