package trunk

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
)

func TestSessionsThatGoOnAreReadAsTheyWereWritten(t *testing.T) {
	open := OpenOf(6, netip.MustParseAddrPort("192.0.2.1:65535"))
	many := Resume{Open: open, Mode: codec.Weighted, Used: "u"}
	for i := range 500 {
		many.Watched = append(many.Watched, fmt.Sprintf("%d%s", i, strings.Repeat("t", 190)))
		many.Weights = append(many.Weights, uint16(1+i))
	}
	unweighted := many
	unweighted.Mode, unweighted.Weights, unweighted.Info = codec.FIFO, nil, true
	aborting := unweighted
	aborting.Info, aborting.Abort = false, true
	for _, r := range []Resume{
		{Open: open, Mode: codec.FIFO, Used: "default", Watched: []string{"default"}},
		{Open: Open{Session: 1<<64 - 1, Network: NetworkUnix}, Mode: codec.FIFO, Used: strings.Repeat("u", maxTube), Watched: []string{"a", "b"}},
		{
			Open: OpenOf(7, netip.MustParseAddrPort("[2001:db8::1]:1")), Answered: journal.MaxOffset, Partial: 1<<32 - 1, Age: maxAge * time.Millisecond,
			Mode: codec.WeightedFair, Info: true, Used: "a", Watched: []string{"b"}, Weights: []uint16{codec.MaxWeight},
		},
		{Open: open, Unanswered: true, Answered: 3, Partial: 2, Age: time.Millisecond, Mode: codec.FIFO, Used: "a", Watched: []string{"b"}},
		many, unweighted, aborting,
	} {
		got := Resume{}
		for part, n := r, 0; len(part.Watched) > 0; n++ {
			b := part.Append(nil)
			p, err := ParseResume(b)
			if err != nil || len(b) > MaxData || len(part.Watched) > 0 && len(b) < MaxData-maxTube-3 {
				t.Fatalf("part %d has %d bytes: %v", n, len(b), err)
			}
			p.Watched, p.Weights = append(got.Watched, p.Watched...), append(got.Weights, p.Weights...)
			got = p
			for i := range resumeHead {
				if p, err := ParseResume(b[:i]); !errors.Is(err, ErrFormat) {
					t.Fatalf("%d bytes of %d were read as %+v, %v", i, len(b), p, err)
				}
			}
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%+v was read as %+v", r, got)
		}
	}
	late := Resume{Open: open, Mode: codec.FIFO, Used: "a", Watched: []string{"b"}, Age: math.MaxInt64}
	if got, err := ParseResume(late.Append(nil)); err != nil || got.Age != maxAge*time.Millisecond {
		t.Errorf("the age is %v, %v", got.Age, err)
	}
}

func TestSessionsThatCannotBeAreRefused(t *testing.T) {
	open := Open{Session: 1}
	for _, r := range []Resume{
		{Mode: codec.FIFO, Used: "a", Watched: []string{"b"}},
		{Open: open, Used: "a", Watched: []string{"b"}},
		{Open: open, Mode: codec.WeightedFair + 1, Used: "a", Watched: []string{"b"}},
		{Open: open, Mode: codec.FIFO, Watched: []string{"b"}},
		{Open: open, Mode: codec.FIFO, Used: "a"},
		{Open: open, Mode: codec.FIFO, Used: strings.Repeat("u", maxTube+1), Watched: []string{"b"}},
		{Open: open, Mode: codec.FIFO, Used: "-a", Watched: []string{"b"}},
		{Open: open, Mode: codec.FIFO, Used: "a", Watched: []string{"b c"}},
		{Open: open, Mode: codec.FIFO, Used: "a", Watched: []string{""}},
		{Open: open, Mode: codec.FIFO, Used: "a", Watched: []string{"b"}, Weights: []uint16{0}},
		{Open: open, Mode: codec.FIFO, Used: "a", Watched: []string{"b"}, Answered: journal.MaxOffset + 1},
	} {
		b := r.Append(nil)
		if got, err := ParseResume(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%x was read as %+v, %v", b, got, err)
		}
	}
	r := Resume{Open: open, Mode: codec.FIFO, Used: "a", Watched: []string{"b"}}
	b := r.Append(nil)
	b[openHead+16] = resumeBits
	if got, err := ParseResume(b); !errors.Is(err, ErrFormat) {
		t.Errorf("%x was read as %+v, %v", b, got, err)
	}
}

func TestEffectsAreReadAsTheyWereWritten(t *testing.T) {
	list := []journal.Effect{
		{Session: 5, Offset: 1, ID: 1<<64 - 1, Kind: journal.EffectPut, State: journal.Held},
		{Session: 5, Offset: journal.MaxOffset, Kind: journal.EffectSetting},
	}
	var b []byte
	for i := range list {
		b = AppendEffect(b, &list[i])
	}
	if got, err := AppendEffects(nil, 5, b); err != nil || !slices.Equal(got, list) || len(b) != len(list)*EffectSize {
		t.Errorf("%+v was read as %+v, %v", list, got, err)
	}
	for _, change := range []struct {
		at int
		to byte
	}{{0, 0}, {7, 0x80}, {16, 0}, {16, byte(journal.EffectSetting)}, {17, byte(journal.Held) + 1}, {18, 1}, {20, 1}, {31, 1}} {
		wrong := slices.Clone(b)
		wrong[change.at] = change.to
		if got, err := AppendEffects(nil, 5, wrong); !errors.Is(err, ErrFormat) {
			t.Errorf("byte %d being %d, they were read as %+v, %v", change.at, change.to, got, err)
		}
	}
	if got, err := AppendEffects(nil, 5, b[:len(b)-1]); !errors.Is(err, ErrFormat) {
		t.Errorf("half an effect was read as %+v, %v", got, err)
	}
}

func TestChoicesAreReadAsTheyWereWritten(t *testing.T) {
	for _, m := range []codec.Mode{codec.FIFO, codec.Default, codec.Weighted, codec.WeightedFair} {
		for bits := range 4 {
			info, abort := bits&1 != 0, bits&2 != 0
			n := Choice(m, info, abort)
			if got, informed, aborted := ParseChoice(n); got != m || informed != info || aborted != abort || !stateFits(Chooses, n, 0) {
				t.Errorf("%v, %v, %v was read as %v, %v, %v", m, info, abort, got, informed, aborted)
			}
		}
	}
}
