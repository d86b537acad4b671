package trunk

import "net/netip"

// Version is the version of what is said on trunks.
const Version = 3

// ResumesSince is the version from which on a session outlives its trunk.
const ResumesSince = 2

// AbortsSince is the version from which on it is said that a client's waits end when it sends more.
const AbortsSince = 3

// Welcome is the leader's first item.
type Welcome struct {
	Version    uint16
	Extensions bool   // clients may use commands that beanstalkd does not have
	MaxJobSize uint32 // of the leader: with Extensions it decides where commands end
	Term       uint64 // in which it leads
	// Fence is an index of the log: what was executed for this loop before is in entries up to it, or in none, ever.
	Fence uint64
}

const welcomeSize = 32

// Append appends the welcome as an item's data.
func (w *Welcome) Append(b []byte) []byte {
	b = le.AppendUint16(b, w.Version)
	extensions := byte(0)
	if w.Extensions {
		extensions = 1
	}
	b = append(b, extensions, 0)
	b = le.AppendUint32(b, w.MaxJobSize)
	b = le.AppendUint64(b, w.Term)
	b = le.AppendUint64(b, w.Fence)
	return le.AppendUint64(b, 0)
}

// ParseWelcome reads an item's data.
func ParseWelcome(b []byte) (w Welcome, err error) {
	if len(b) != welcomeSize || b[2] > 1 || b[3] != 0 || le.Uint64(b[24:]) != 0 {
		return w, malformed("a welcome")
	}
	return Welcome{
		Version: le.Uint16(b), Extensions: b[2] == 1, MaxJobSize: le.Uint32(b[4:]),
		Term: le.Uint64(b[8:]), Fence: le.Uint64(b[16:]),
	}, nil
}

// Network is how a client has connected to its gateway.
type Network uint8

// The networks.
const (
	NetworkUnknown Network = iota
	NetworkUnix
	NetworkOwn // the gateway's process itself: its console
	NetworkIPv4
	NetworkIPv6
)

// Open is a client that is to be served.
type Open struct {
	Session uint64 // its id: the number of the gateway's loop, and a count
	Network Network
	Client  netip.AddrPort // its address, of a network that has some
}

const (
	openHead = 9
	maxOpen  = openHead + 2 + 16
)

// OpenOf is a client with an address of TCP, which may be the zero one.
func OpenOf(session uint64, client netip.AddrPort) Open {
	o := Open{Session: session, Client: client}
	switch a := client.Addr(); {
	case a.Is4():
		o.Network = NetworkIPv4
	case a.Is6():
		o.Network = NetworkIPv6
		o.Client = netip.AddrPortFrom(a.WithZone(""), client.Port())
	}
	return o
}

// Append appends the client as an item's data.
func (o *Open) Append(b []byte) []byte {
	b = le.AppendUint64(b, o.Session)
	b = append(b, byte(o.Network))
	if o.Network >= NetworkIPv4 {
		b = le.AppendUint16(b, o.Client.Port())
		b = append(b, o.Client.Addr().AsSlice()...)
	}
	return b
}

// ParseOpen reads an item's data.
func ParseOpen(b []byte) (o Open, err error) {
	o, rest, err := parseOpen(b)
	if err == nil && len(rest) > 0 {
		return Open{}, malformed("an open with %d bytes too many", len(rest))
	}
	return o, err
}

// parseOpen reads what begins an item's data.
func parseOpen(b []byte) (o Open, rest []byte, err error) {
	if len(b) < openHead {
		return o, nil, malformed("a session of %d bytes", len(b))
	}
	o.Session, o.Network = le.Uint64(b), Network(b[8])
	want := openHead
	switch o.Network {
	case NetworkIPv4:
		want += 2 + 4
	case NetworkIPv6:
		want += 2 + 16
	}
	if o.Session == 0 || o.Network > NetworkIPv6 || len(b) < want {
		return o, nil, malformed("session %d, network %d, %d bytes", o.Session, o.Network, len(b))
	}
	if want > openHead {
		a, _ := netip.AddrFromSlice(b[openHead+2 : want]) // its length is right
		o.Client = netip.AddrPortFrom(a, le.Uint16(b[openHead:]))
	}
	return o, b[want:], nil
}

// Grant is what a client may do.
type Grant struct {
	Name    string
	Account string // "" for none
	Rights  uint8  // as in package engine
	Tubes   []string
}

const (
	grantHead = 3
	maxText   = 255
	maxTube   = 200
)

// Append appends a part of the grant as an item's data: all but the tubes for which there is no
// room, which it returns. Of a name or account it takes 255 bytes.
func (g *Grant) Append(b []byte) (data []byte, rest []string) {
	size := grantHead
	b = append(b, g.Rights)
	for _, s := range []string{g.Name, g.Account} {
		s = s[:min(len(s), maxText)]
		b = appendText(b, s)
		size += len(s)
	}
	for i, t := range g.Tubes {
		if size += 1 + len(t); size > MaxData {
			return b, g.Tubes[i:]
		}
		b = appendText(b, t[:min(len(t), maxText)])
	}
	return b, nil
}

// ParseGrant reads an item's data.
func ParseGrant(b []byte) (g Grant, err error) {
	if len(b) < grantHead {
		return g, malformed("a grant of %d bytes", len(b))
	}
	g.Rights = b[0]
	b = b[1:]
	ok := true
	if g.Name, b, ok = text(b); ok {
		g.Account, b, ok = text(b)
	}
	for ok && len(b) > 0 {
		var t string
		t, b, ok = text(b)
		g.Tubes = append(g.Tubes, t)
	}
	if !ok {
		return g, malformed("a grant that ends within a text")
	}
	return g, nil
}

// Denied tells of a command that a client has no right to.
type Denied struct {
	Command, Tube, To, Result string
	ID                        uint64 // of the job or connection; 0 where there is none
}

const (
	deniedHead = 8 + 4
	maxDenied  = deniedHead + 4*maxText
)

// Append appends what was denied as an item's data, 255 bytes of each text.
func (d *Denied) Append(b []byte) []byte {
	b = le.AppendUint64(b, d.ID)
	for _, s := range []string{d.Command, d.Tube, d.To, d.Result} {
		b = appendText(b, s[:min(len(s), maxText)])
	}
	return b
}

// ParseDenied reads an item's data.
func ParseDenied(b []byte) (d Denied, err error) {
	if len(b) < deniedHead {
		return d, malformed("a denied of %d bytes", len(b))
	}
	d.ID = le.Uint64(b)
	b = b[8:]
	ok := true
	for _, s := range []*string{&d.Command, &d.Tube, &d.To, &d.Result} {
		if ok {
			*s, b, ok = text(b)
		}
	}
	if !ok || len(b) > 0 {
		return d, malformed("a denied that is too short or too long")
	}
	return d, nil
}

// appendText appends a text of up to 255 bytes behind its length.
func appendText(b []byte, s string) []byte {
	b = append(b, byte(len(s)))
	return append(b, s...)
}

// text reads what appendText has written.
func text(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b) <= int(b[0]) {
		return "", nil, false
	}
	end := 1 + int(b[0])
	return string(b[1:end]), b[end:], true
}
