package wire

import (
	"bytes"
	"io"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/wire/wiretest"
)

// A message of one entry from Send to the handler, with a window of them on the way.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		for _, secure := range []bool{false, true} {
			b.Run(map[bool]string{false: "plain", true: "tls"}[secure]+"/"+sizeName(size), func(b *testing.B) {
				s := setup{timing: patient, change: func(i int, n *node, _ *Config) {
					if i == 1 {
						n.got = make(chan *raftpb.Message, 64)
					}
				}}
				if secure {
					ours := wiretest.NewAuthority(b, "ours")
					f := ours.Issue(time.Now().Add(time.Hour), "127.0.0.1")
					cfg, err := LoadTLS(f.Cert, f.Key, ours.File, quietLog(io.Discard))
					if err != nil {
						b.Fatal(err)
					}
					s.tls = func(int) *Credentials { return cfg }
				}
				ns := nodes(b, 2, s)
				meet(b, ns...)
				m := appendOf(ns[0], ns[1], 1, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					ns[0].tr.Send(m)
					if i >= 4 {
						<-ns[1].got
					}
				}
				for range min(b.N, 4) {
					<-ns[1].got
				}
			})
		}
	}
}

// Encoding alone, which is what the sending side adds to the system's work.
func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{0, 16 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			f := newFrameWriter(io.Discard, bufSize)
			m := appendOf(me, you, 1, size)
			b.SetBytes(int64(messageSize(m)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f.message(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Reading alone: the frame, its checksum, and the message.
func BenchmarkDecode(b *testing.B) {
	for name, m := range map[string]*raftpb.Message{
		"heartbeat": message(raftpb.MsgHeartbeat, me, you),
		"16KiB":     appendOf(me, you, 1, 16<<10),
		"4x16KiB":   appendOf(me, you, 1, 16<<10, 16<<10, 16<<10, 16<<10),
	} {
		b.Run(name, func(b *testing.B) {
			frame := encodeFrame(kindMessage, encodeMessage(b, m))
			src := bytes.NewReader(frame)
			r := newFrameReader(src, bufSize, kindMessage)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				src.Reset(frame)
				_, p, err := r.next()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := decodeMessage(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return "1MiB"
	case n >= 1<<10:
		return "16KiB"
	case n == 0:
		return "empty"
	}
	return "100B"
}
