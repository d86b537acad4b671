package trunk

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/replica/wire/frame"
	"trellis/codec"
)

func data(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }

// samples are items of all kinds that a side sends.
func samples(from Side) (list []Item) {
	g := Grant{Name: "a", Tubes: []string{"b", "c*"}, Rights: 3}
	grant, _ := g.Append(nil)
	open := Open{Session: 1 << 40, Network: NetworkUnix}
	denied := Denied{Command: "kick", Result: "UNKNOWN_COMMAND", ID: 3}
	plain := Resume{Open: open, Mode: codec.FIFO, Used: "default", Watched: []string{"default"}}
	rest := Resume{Open: open, Mode: codec.Weighted, Used: "a", Watched: []string{"b", "c"}, Weights: []uint16{1, 9999}}
	effect := AppendEffect(nil, &journal.Effect{Offset: 1, ID: 2, Kind: journal.EffectUpdate, State: journal.Buried})
	for _, it := range []Item{
		{Kind: KindGrant, Number: 1, Data: grant},
		{Kind: KindGrant, Flags: More, Number: MaxGrant, Data: grant},
		{Kind: KindOpen, Channel: 1, Number: 1, Data: open.Append(nil)},
		{Kind: KindResume, Channel: 1, Number: 1, Data: plain.Append(nil)},
		{Kind: KindResume, Channel: 1, Flags: More, Data: rest.Append(nil)},
		{Kind: KindEffects, Channel: 1, Data: bytes.Repeat(effect, 3)},
		{Kind: KindEffects, Channel: 1, Flags: Last},
		{Kind: KindAttached},
		{Kind: KindInput, Channel: 1, Data: []byte("put 0 0 1 1\r\nx\r\n")},
		{Kind: KindInput, Channel: MaxChannel, Data: data(MaxData)},
		{Kind: KindCredit, Channel: 1, Number: MaxCredit},
		{Kind: KindHalfClose, Channel: 1, Flags: Leaves},
		{Kind: KindClose, Channel: 1},
		{Kind: KindPing, Number: 1<<32 - 1},
		{Kind: KindLeave},
		{Kind: KindWelcome, Data: new(Welcome).Append(nil)},
		{Kind: KindReplies, Channel: 2, Number: 1<<32 - 1, Flags: More, Data: data(1)},
		{Kind: KindReplies, Channel: 2, Data: data(MaxData)},
		{Kind: KindState, Channel: 1, Flags: Ignores, Data: data(maxTube)},
		{Kind: KindState, Channel: 1, Data: data(1)},
		{Kind: KindState, Channel: 1, Flags: Watches, Number: codec.MaxWeight, Data: data(1)},
		{Kind: KindState, Channel: 1, Flags: Chooses, Number: Choice(codec.WeightedFair, true, true)},
		{Kind: KindEnd, Channel: 3, Flags: Reset, Number: 1<<32 - 1},
		{Kind: KindDenied, Channel: 3, Data: denied.Append(nil)},
		{Kind: KindPong},
		{Kind: KindRetire},
	} {
		if shapes[it.Kind].from&from != 0 {
			list = append(list, it)
		}
	}
	return list
}

func framesOf(items ...Item) []byte {
	var w Writer
	for i := range items {
		w.Add(&items[i])
	}
	return slices.Clone(w.Bytes())
}

// read takes all items of what comes in pieces of a size.
func read(r *Reader, b []byte, size int) (items []Item, err error) {
	for len(b) > 0 && err == nil {
		n := min(size, len(b))
		p := bytes.Clone(b[:n])
		b = b[n:]
		for more := true; more && err == nil; {
			var it Item
			if p, more, err = r.Take(p, &it); more {
				it.Data = slices.Clone(it.Data)
				items = append(items, it)
			}
		}
		for i := range p {
			p[i] = 0xee // nothing of it is kept
		}
	}
	return items, err
}

func sameItem(a, b Item) bool {
	return a.Kind == b.Kind && a.Flags == b.Flags && a.Channel == b.Channel && a.Number == b.Number && bytes.Equal(a.Data, b.Data)
}

func TestItemsAreReadAsTheyWereWritten(t *testing.T) {
	for _, from := range []Side{Gateway, Leader} {
		items := samples(from)
		for range 3 {
			items = append(items, items...)
		}
		b := framesOf(items...)
		for _, size := range []int{1, 2, 7, 11, 12, 13, 100, MaxPayload - 1, MaxPayload, maxFrame, maxFrame + 1, len(b) - 1, len(b)} {
			r := NewReader(from)
			got, err := read(&r, b, size)
			if err != nil || !slices.EqualFunc(got, items, sameItem) {
				t.Fatalf("in pieces of %d: %d of %d items, %v", size, len(got), len(items), err)
			}
		}
	}
}

// What is sent in parts is what was added, also while more is added.
func TestFramesAreSentInParts(t *testing.T) {
	items := slices.Repeat(samples(Gateway), 20)
	var w Writer
	var sent []byte
	for i := range items {
		w.Add(&items[i])
		if i%3 == 0 {
			b := w.Bytes()
			n := len(b) * (i % 5) / 4
			sent = append(sent, b[:n]...)
			w.Sent(n)
		}
		if w.Len() > cap(w.buf) || w.Len() > 0 && w.sent > len(w.buf)/2 {
			t.Fatalf("%d bytes of %d are to be sent", w.Len(), len(w.buf))
		}
	}
	sent = append(sent, w.Bytes()...)
	w.Sent(len(w.Bytes()))
	r := NewReader(Gateway)
	if got, err := read(&r, sent, 1000); err != nil || !slices.EqualFunc(got, items, sameItem) || w.Len() != 0 {
		t.Fatalf("%d of %d items, %v; %d bytes are left", len(got), len(items), err, w.Len())
	}
}

func TestFramesHaveAtMostSoMuch(t *testing.T) {
	var items []Item
	for i := range 100 {
		items = append(items, Item{Kind: KindInput, Channel: 1, Data: data(1 + i*163%MaxData)})
	}
	for b := framesOf(items...); len(b) > 0; {
		n, err := frameSize(b)
		if err != nil || n > maxFrame || n > len(b) {
			t.Fatalf("a frame of %d bytes: %v", n, err)
		}
		b = b[n:]
	}
}

func TestPulsesAreNoItems(t *testing.T) {
	var w Writer
	item := Item{Kind: KindRetire}
	w.Pulse()
	w.Pulse()
	w.Add(&item)
	w.Pulse()
	b := slices.Clone(w.Bytes())
	if want := 3*(frame.Head+frame.Tail) + ItemHead; len(b) != want {
		t.Fatalf("%d bytes, want %d", len(b), want)
	}
	for size := 1; size < 40; size++ {
		r := NewReader(Leader)
		if got, err := read(&r, b, size); len(got) != 1 || !sameItem(got[0], item) || err != nil {
			t.Fatalf("pulses were read as %v, %v", got, err)
		}
	}
}

func TestWhatNobodySendsIsRefused(t *testing.T) {
	for _, from := range []Side{Gateway, Leader} {
		for _, it := range samples(Gateway | Leader) {
			r := NewReader(from)
			_, err := read(&r, framesOf(it), 1000)
			if sent := shapes[it.Kind].from&from != 0; sent != (err == nil) || !sent && !errors.Is(err, ErrFormat) {
				t.Errorf("%s from side %d: %v", it.Kind, from, err)
			}
		}
	}
	for _, it := range []Item{
		{Kind: 0},
		{Kind: kinds},
		{Kind: 255},
		{Kind: KindPing, Channel: 1},
		{Kind: KindClose},
		{Kind: KindClose, Channel: MaxChannel + 1},
		{Kind: KindClose, Channel: 1, Number: 1},
		{Kind: KindClose, Channel: 1, Flags: 1},
		{Kind: KindClose, Channel: 1, Data: data(1)},
		{Kind: KindInput, Channel: 1},
		{Kind: KindInput, Channel: 1, Data: data(MaxData + 1)},
		{Kind: KindCredit, Channel: 1},
		{Kind: KindCredit, Channel: 1, Number: MaxCredit + 1},
		{Kind: KindReplies, Channel: 1, Flags: 2, Data: data(1)},
		{Kind: KindState, Channel: 1, Flags: Chooses + 1, Data: data(1)},
		{Kind: KindState, Channel: 1, Data: data(maxTube + 1)},
		{Kind: KindState, Channel: 1},
		{Kind: KindState, Channel: 1, Number: 1, Data: data(1)},
		{Kind: KindState, Channel: 1, Flags: Watches, Number: codec.MaxWeight + 1, Data: data(1)},
		{Kind: KindState, Channel: 1, Flags: Ignores, Number: 1, Data: data(1)},
		{Kind: KindState, Channel: 1, Flags: Chooses},
		{Kind: KindState, Channel: 1, Flags: Chooses, Number: uint32(codec.WeightedFair) + 1},
		{Kind: KindState, Channel: 1, Flags: Chooses, Number: 4<<8 | uint32(codec.FIFO)},
		{Kind: KindState, Channel: 1, Flags: Chooses, Number: uint32(codec.FIFO), Data: data(1)},
		{Kind: KindAttached, Number: 1},
		{Kind: KindEffects, Channel: 1, Flags: 2},
		{Kind: KindResume, Channel: 1, Data: data(resumeHead - 1)},
	} {
		r := NewReader(Gateway | Leader)
		if got, err := read(&r, framesOf(it), 1000); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v was read as %+v, %v", it, got, err)
		}
	}
	long := frame.Seal(make([]byte, maxFrame+1), 0)
	frame.PutHead(long, FrameKind, MaxPayload+1)
	other := framesOf(Item{Kind: KindLeave})
	other[4]++
	short := make([]byte, frame.Head, 100)
	frame.PutHead(short, FrameKind, ItemHead-1)
	short = frame.Seal(append(short, byte(KindLeave), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0)
	for name, b := range map[string][]byte{"a long frame": long[:frame.Head], "a frame of another kind": other, "half a head": short} {
		for _, size := range []int{1, 1000} {
			r := NewReader(Gateway)
			if got, err := read(&r, b, size); !errors.Is(err, ErrFormat) {
				t.Errorf("%s was read as %+v, %v", name, got, err)
			}
		}
	}
}

func TestChangedFramesAreRefused(t *testing.T) {
	whole := framesOf(samples(Gateway)[:4]...)
	for i := range whole {
		for bit := range 8 {
			b := slices.Clone(whole)
			b[i] ^= 1 << bit
			r := NewReader(Gateway)
			// A greater length lacks bytes.
			if got, err := read(&r, b, len(b)); len(got) > 0 || err != nil && !errors.Is(err, ErrFormat) {
				t.Fatalf("byte %d, bit %d: %v, %v", i, bit, got, err)
			}
		}
	}
}

func TestNothingIsAllocatedForItems(t *testing.T) {
	items := samples(Gateway)
	var w Writer
	r := NewReader(Gateway)
	if n := testing.AllocsPerRun(100, func() {
		for i := range items {
			w.Add(&items[i])
		}
		for w.Len() > 0 {
			p := w.Bytes()
			p = p[:min(len(p), 1000)]
			n := len(p)
			var it Item
			for more := true; more; {
				p, more, _ = r.Take(p, &it)
			}
			w.Sent(n)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzItems(f *testing.F) {
	for _, from := range []Side{Gateway, Leader} {
		for _, it := range samples(from) {
			if len(it.Data) < MaxData { // long ones take long to be made shorter
				f.Add(framesOf(it, it), uint16(100), from == Gateway)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint16, gateway bool) {
		from := Leader
		if gateway {
			from = Gateway
		}
		whole, parts := NewReader(from), NewReader(from)
		items, err := read(&whole, b, max(1, len(b)))
		again, err2 := read(&parts, b, int(size)+1)
		if !slices.EqualFunc(items, again, sameItem) || (err == nil) != (err2 == nil) {
			t.Fatalf("%x was read as %v, %v and in parts as %v, %v", b, items, err, again, err2)
		}
		if cap(parts.part) > 2*maxFrame {
			t.Fatalf("%d bytes are kept", cap(parts.part))
		}
		r := NewReader(from)
		if got, err := read(&r, framesOf(items...), 1000); err != nil || !slices.EqualFunc(got, items, sameItem) {
			t.Fatalf("%v was written and read as %v, %v", items, got, err)
		}
		for _, it := range items {
			switch it.Kind {
			case KindOpen:
				if o, err := ParseOpen(it.Data); err == nil && !bytes.Equal(o.Append(nil), it.Data) {
					t.Fatalf("%x is %+v", it.Data, o)
				}
			case KindResume:
				if r, err := ParseResume(it.Data); err == nil {
					if again := r.Append(nil); !bytes.Equal(again, it.Data) || len(r.Watched) != 0 {
						t.Fatalf("%x is %+v", it.Data, r)
					}
				}
			case KindEffects:
				if list, err := AppendEffects(nil, 1, it.Data); err == nil {
					var again []byte
					for i := range list {
						again = AppendEffect(again, &list[i])
					}
					if !bytes.Equal(again, it.Data) {
						t.Fatalf("%x is %+v", it.Data, list)
					}
				}
			case KindGrant:
				if g, err := ParseGrant(it.Data); err == nil {
					if again, rest := g.Append(nil); !bytes.Equal(again, it.Data) || rest != nil {
						t.Fatalf("%x is %+v", it.Data, g)
					}
				}
			case KindWelcome:
				if w, err := ParseWelcome(it.Data); err == nil && !bytes.Equal(w.Append(nil), it.Data) {
					t.Fatalf("%x is %+v", it.Data, w)
				}
			case KindDenied:
				if d, err := ParseDenied(it.Data); err == nil && !bytes.Equal(d.Append(nil), it.Data) {
					t.Fatalf("%x is %+v", it.Data, d)
				}
			}
		}
	})
}

// What 100 bytes of input cost, without a channel.
func BenchmarkItems(b *testing.B) {
	b.ReportAllocs()
	it := Item{Kind: KindInput, Channel: 1, Data: data(100)}
	var w Writer
	r := NewReader(Gateway)
	for i := 0; i < b.N; {
		for range 500 {
			w.Add(&it)
			i++
		}
		p := w.Bytes()
		n := len(p)
		for more := true; more; {
			var err error
			if p, more, err = r.Take(p, &it); err != nil {
				b.Fatal(err)
			}
		}
		w.Sent(n)
		it = Item{Kind: KindInput, Channel: 1, Data: data(100)}
	}
}
