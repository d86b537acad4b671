package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

// Config configures a Transport.
type Config struct {
	// Self and Cluster are who this node is. Without them (Self.ID is 0) the transport
	// serves control requests only, until Identify.
	Self    member.Member
	Cluster member.ClusterID

	// TLS is used for connections of both directions; see LoadTLS. Without it, the
	// listener and all peers have to be on loopback.
	TLS *Credentials

	// Nodes are members by the command line: certificates for their hosts are members' too.
	Nodes []member.Node

	// Listener takes the peers' connections. Close closes it.
	Listener net.Listener

	// Dial connects to an address. Nil means TCP. Tests cut, delay and block here.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	Handler Handler
	Log     *slog.Logger

	speaks versions // zero means spoken
}

// Handler is the node. Its methods are called from goroutines of the transport, never
// from within a call to it, and not any more when Close has returned.
type Handler interface {
	// Message gets a message that a member has sent. It must not block: it discards the
	// message if the node has no room for it. The message is the handler's; the data of
	// its entries share a buffer.
	//
	// Checked are the kind (see doc.go), From and To, and that entries follow each other
	// from Index on with terms that do not fall.
	Message(m *raftpb.Message)

	// Snapshot takes a snapshot: it reads r up to io.EOF, makes what it has read durable,
	// and passes m to raft. An error is what the sender reports. One call is made at a
	// time. Reads fail if nothing comes for a while, if a newer stream comes in, and at
	// Close. If m has a context the sender waits for what tell is given, once and before r is read: MaxHas bytes at
	// most.
	Snapshot(m *raftpb.Message, r io.Reader, tell func(has []byte) error) error

	// Unreachable tells that a message to a member was lost. Unlike the others it may be
	// called from within Send. It must not block.
	Unreachable(id member.ID)

	// SnapshotSent tells how a SendSnapshot has ended.
	SnapshotSent(id member.ID, ok bool)

	// NotMember tells that this node was removed from the cluster: a member has applied
	// an entry behind one as of which SetPeers has named this node, and does not have it
	// as a member any more. It is told again at each attempt to connect.
	NotMember(by member.ID)

	// Trunk is asked whether a loop of a member's gateway may begin a trunk, and returns what takes
	// it, when the loop's trunk before has ended. It may wait for a moment, until ctx is done. An error's text
	// is sent to the gateway. When the context of the trunk ends, the trunk has to: the loop's next one waits
	// for that.
	Trunk(ctx context.Context, from member.Member, h TrunkHello) (take func(*Trunk), err error)

	// Control answers a control request of whoever holds a certificate of the cluster's
	// authorities. The context ends when the asking side has gone
	// and at Close. The text of an error is sent. What is written to stream, before Control
	// returns, is sent before the response; its writes fail when the asking side is slow
	// for too long. Most requests have no use for it.
	Control(ctx context.Context, from Caller, req []byte, stream io.Writer) (resp []byte, err error)
}

// ErrPlain tells that an address is not on loopback and that there is no TLS.
var ErrPlain = errors.New("connections between members need TLS off loopback: " +
	"--cluster-cert, --cluster-key and --cluster-ca")

// CheckPlain reports whether members may talk without TLS: all addresses are on loopback.
func CheckPlain(addrs ...string) error {
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
			return fmt.Errorf("%s: %w", addr, ErrPlain)
		}
	}
	return nil
}

// timing is how long things may take.
type timing struct {
	pulse   time.Duration // between two pulses of a connection
	dead    time.Duration // without a byte, after which a connection is given up
	greet   time.Duration // to connect, and for TLS and handshake, each
	stall   time.Duration // of a snapshot stream or a control request without progress
	finish  time.Duration // of a receiver, from the end of a stream on, beside a second for each finishRate bytes
	retry   time.Duration // from one attempt to the next one; doubles up to retries
	retries time.Duration

	// farewell is how long the lanes to a removed member stay, for what was sent before: it is to
	// learn that it was removed.
	farewell time.Duration
}

// finishRate is what a receiver of a snapshot makes durable at least, in bytes a second.
const finishRate = 4 << 20

var usual = timing{
	pulse:   500 * time.Millisecond,
	dead:    3 * time.Second,
	greet:   time.Second,
	stall:   15 * time.Second,
	finish:  time.Minute,
	retry:   20 * time.Millisecond,
	retries: time.Second,

	farewell: 200 * time.Millisecond,
}

// MaxHas is how many bytes a receiver may tell the sender of a snapshot.
const MaxHas = 40 << 20

// Bounds of what others can make a node hold.
const (
	maxGreeting  = 64                    // connections that have not said who they are
	maxNewcomers = 2 * member.MaxMembers // that SetPeers has not named
	maxControl   = 16                    // control requests at a time
	maxStreams   = 4                     // snapshot streams at a time; one is taken, the others wait or are refused
	maxQueue     = 16 << 20              // bytes of messages that wait on a lane, but for a single one
	maxQueued    = 4096                  // messages that wait on a lane
)
