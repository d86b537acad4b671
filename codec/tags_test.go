package codec

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTagsOfAPut(t *testing.T) {
	t.Parallel()
	k64 := strings.Repeat("k", 64)
	for _, c := range []struct {
		tags string
		want Tags // none for a malformed put
	}{
		{" idp:k", Tags{Unique: []byte("k")}},
		{" idp:k:0", Tags{Unique: []byte("k")}},
		{" idp:k:007", Tags{Unique: []byte("k"), Seconds: 7}},
		{" idp:k:4294967295", Tags{Unique: []byte("k"), Seconds: 1<<32 - 1}},
		{" con:c", Tags{Limited: []byte("c"), Limit: 1}},
		{" con:c:3", Tags{Limited: []byte("c"), Limit: 3}},
		{"  con:c:2  idp:k", Tags{Unique: []byte("k"), Limited: []byte("c"), Limit: 2}},
		{" idp:" + k64 + ":4294967295 con:" + k64 + ":4294967295", Tags{Unique: []byte(k64), Seconds: 1<<32 - 1, Limited: []byte(k64), Limit: 1<<32 - 1}},
		{" idp:k-+/;.$_()", Tags{Unique: []byte("k-+/;.$_()")}},
		{" ", Tags{}},
		{" idp", Tags{}},
		{" idp:", Tags{}},
		{"idp:k", Tags{}},
		{"\tidp:k", Tags{}},
		{" idp:k ", Tags{}},
		{" idp:k\t", Tags{}},
		{" idp:-k", Tags{}},
		{" idp:k@", Tags{}},
		{" idp:k:", Tags{}},
		{" idp:k:-1", Tags{}},
		{" idp:k: 1", Tags{}},
		{" idp:k:4294967296", Tags{}},
		{" idp:k:18446744073709551616", Tags{}},
		{" idp:k:1:2", Tags{}},
		{" idp:" + k64 + "k", Tags{}},
		{" idp:k idp:j", Tags{}},
		{" con:c con:c", Tags{}},
		{" con:c:0", Tags{}},
		{" con:c:", Tags{}},
		{" fair:f", Tags{Fair: []byte("f")}},
		{" fair:" + k64, Tags{Fair: []byte(k64)}},
		{" grp:g", Tags{Group: []byte("g")}},
		{" aft:g", Tags{After: []byte("g")}},
		{" aft:g:settled", Tags{After: []byte("g"), Settled: true}},
		{" grp:g aft:h", Tags{Group: []byte("g"), After: []byte("h")}},
		{" exp:0", Tags{HasExpiry: true}},
		{" exp:004294967295", Tags{HasExpiry: true, Expires: 1<<32 - 1}},
		{" exp:9 fair:f aft:h:settled  grp:g con:c:2 idp:i:7", Tags{
			Unique: []byte("i"), Seconds: 7, Limited: []byte("c"), Limit: 2, Fair: []byte("f"),
			Group: []byte("g"), After: []byte("h"), Settled: true, HasExpiry: true, Expires: 9,
		}},
		{" fair", Tags{}},
		{" fair:", Tags{}},
		{" fair:-f", Tags{}},
		{" fair:f:1", Tags{}},
		{" fair:f:", Tags{}},
		{" fair:f fair:g", Tags{}},
		{" fair:" + k64 + "k", Tags{}},
		{" grp:", Tags{}},
		{" grp:-g", Tags{}},
		{" grp:g:1", Tags{}},
		{" grp:g grp:h", Tags{}},
		{" grp:" + k64 + "k", Tags{}},
		{" aft:", Tags{}},
		{" aft:g:", Tags{}},
		{" aft:g:Settled", Tags{}},
		{" aft:g:settled:", Tags{}},
		{" aft:g:settled:1", Tags{}},
		{" aft:g aft:h", Tags{}},
		{" aft:g:settled aft:h", Tags{}},
		{" aft:" + k64 + "k", Tags{}},
		{" grp:g aft:g", Tags{}},
		{" aft:g:settled grp:g", Tags{}},
		{" exp:", Tags{}},
		{" exp:x", Tags{}},
		{" exp:1x", Tags{}},
		{" exp:-1", Tags{}},
		{" exp:1:2", Tags{}},
		{" exp:1:", Tags{}},
		{" exp:4294967296", Tags{}},
		{" exp:1 exp:2", Tags{}},
		{" exp:0 exp:0", Tags{}},
		{" GRP:g", Tags{}},
		{" IDP:k", Tags{}},
		{" idp:k x", Tags{}},
	} {
		line := "put 4294967295 4294967295 4294967295 1" + c.tags + "\r\n"
		for _, extensions := range []bool{true, false} {
			for cut := range len(line) {
				d := Decoder{MaxJobSize: 10, Extensions: extensions}
				// What an earlier command left must not show.
				cmd := Command{Tags: &Tags{Unique: []byte("old"), Limited: []byte("old"), Limit: 7, Fair: []byte("old"), Expires: 7}}
				if n, ok := d.Next([]byte(line[:cut]), &cmd); ok || n != cut {
					t.Fatalf("%q: a command after %d bytes", line, cut)
				}
				if _, ok := d.Next([]byte(line[cut:]+"a\r\n"), &cmd); !ok {
					t.Fatalf("%q: no command", line)
				}
				if good := !reflect.DeepEqual(c.want, Tags{}); !extensions || !good {
					if cmd.Op != OpBadFormat || cmd.CountAs != OpPut {
						t.Fatalf("%q with extensions %v is %v, counted as %v", line, extensions, cmd.Op, cmd.CountAs)
					}
					continue
				}
				got := cmd.Tags
				if cmd.Op != OpPut || got == nil || !reflect.DeepEqual(*got, c.want) {
					t.Fatalf("%q cut at %d is %v with %+v, want %+v", line, cut, cmd.Op, got, c.want)
				}
			}
		}
	}
}

func TestAPutWithoutTagsHasNone(t *testing.T) {
	t.Parallel()
	d := Decoder{MaxJobSize: 10, Extensions: true}
	cmd := Command{Tags: new(Tags)}
	if _, ok := d.Next([]byte("put 1 2 3 1\r\na\r\n"), &cmd); !ok || cmd.Op != OpPut || cmd.Tags != nil {
		t.Errorf("%+v", cmd)
	}
}

// Size decides before tags do.
func TestAPutTooBigIsThatWhateverItsTags(t *testing.T) {
	t.Parallel()
	d := Decoder{MaxJobSize: 10, Extensions: true}
	var cmd Command
	if _, ok := d.Next([]byte("put 1 2 3 11 x:y\r\n"), &cmd); !ok || cmd.Op != OpPutTooBig {
		t.Errorf("%+v", cmd)
	}
}

// What a stranger may have written behind a tag's colon must not make a server execute the body,
// which the stranger may have written, too.
func TestAMalformedPutWithTagsTakesItsBodyAlong(t *testing.T) {
	t.Parallel()
	const body = "flush-tube default\r\nx"
	numbers := fmt.Sprintf("put 0 0 60 %d", len(body))
	long := strings.Repeat("k", 300)
	for _, c := range []struct {
		line  string
		taken bool
	}{
		{numbers + " idp:bob@x.org", true},
		{numbers + " idp:", true},
		{numbers + "   x:y", true},
		{numbers + " IDP:k", true},
		{numbers + " iDp:k", true},
		{numbers + " AZaz:" + long, true},
		{numbers + " idp:k ", true},
		{numbers + " idp:k\t", true},
		{numbers + " idp:a\nb", true},
		{numbers + " idp:a\rb", true},
		{numbers + " idp:a\x00b", true},
		{numbers + " idp:k:4294967296", true},
		{numbers + " idp:k idp:j", true},
		{numbers + " con:c:0", true},
		{numbers + " grp:g aft:g", true},
		{numbers + " aft:g:Settled", true},
		{numbers + " exp:4294967296", true},
		{numbers + " fair:" + long[:65], true},
		{numbers + " idp:" + long[:65], true},
		{numbers + " idp:" + long, true},
		{numbers + " idp:" + long + "\x00", true},
		{numbers + strings.Repeat(" ", 300) + "idp:k", true},
		{"put 0 0 60 " + strings.Repeat("0", 300) + fmt.Sprint(len(body)) + " idp:k", true},
		{"put " + strings.Repeat(" ", 300) + numbers[len("put "):] + " idp:k", true},
		{numbers, false},
		{numbers + " ", false},
		{numbers + " idp", false},
		{numbers + " :k", false},
		{numbers + " k idp:k", false},
		{numbers + "idp:k", false},
		{numbers + "\tidp:k", false},
		{numbers + " \x00idp:k", false},
		{numbers + " idp2:k", false},
		{numbers + " @:k", false},
		{numbers + " [:k", false},
		{numbers + " `:k", false},
		{numbers + " {:k", false},
		{numbers + " " + long, false},
		{numbers + strings.Repeat(" ", 300), false},
		{numbers + " idp\r:" + long, false},
		{"put 0 0 60 idp:k", false},
		{"put 0 0 4294967296 22 idp:k", false},
		{"put 0 0 60 4294967296 idp:" + long, false},
		{"put 0 -1 60 22 idp:k", false},
		{" " + numbers + " idp:k", false},
		{"Put 0 0 60 22 idp:k", false},
	} {
		input := c.line + "\r\n" + body + "\r\n" + followUp
		check(t, input, 65535, []int{len(c.line), len(c.line) + 2, len(c.line) + 9})
		d := Decoder{MaxJobSize: 65535, Extensions: true}
		got := answers(decode(t, &d, nil, input))
		want := []string{"BAD_FORMAT", "ok"}
		switch {
		case c.line == numbers:
			want = []string{"ok", "ok"}
		case !c.taken:
			if want = []string{"BAD_FORMAT", "ok", "UNKNOWN_COMMAND", "ok"}; c.line[0] != 'p' {
				want[0] = "UNKNOWN_COMMAND"
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.60q is answered %q, want %q", c.line, got, want)
		}
	}
}

// The size is known, however big, and nobody keeps what is dropped.
func TestTheBodyOfAMalformedPutMayBeOfAnySize(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"put 0 0 1 %d idp:@%s\r\n", "put 0 0 1 %d %sidp:@\x00\r\n"} {
		for _, fill := range []string{"", strings.Repeat(" ", MaxLine)} {
			d := Decoder{MaxJobSize: 10, Extensions: true}
			if fill == "" && strings.HasSuffix(line, "%s\r\n") {
				d.MaxJobSize = math.MaxUint32 // otherwise it is too big
			}
			var cmd Command
			p := fmt.Appendf(nil, line, uint32(math.MaxUint32), fill)
			if n, ok := d.Next(p, &cmd); ok || n != len(p) {
				t.Fatalf("%q: %d, %v, %+v", p, n, ok, cmd)
			}
			if !d.Refusing() || d.line != nil || d.left != math.MaxUint32+2 {
				t.Errorf("%q: %+v", p, d)
			}
			for piece := make([]byte, 1<<20); d.left > uint64(len(piece)); {
				if n, ok := d.Next(piece, &cmd); ok || n != len(piece) {
					t.Fatalf("%q: %d, %v, %+v", p, n, ok, cmd)
				}
			}
			left := int(d.left)
			if n, ok := d.Next(make([]byte, left+1), &cmd); n != left || !ok || cmd.Op != OpBadFormat || cmd.CountAs != OpPut || d.Refusing() {
				t.Errorf("%q: %d, %v, %v, counted as %v", p, n, ok, cmd.Op, cmd.CountAs)
			}
		}
	}
}

func FuzzPutsWithTags(f *testing.F) {
	for _, s := range []string{
		" idp:k", " idp:k:9", " con:c:2 idp:k:0", "  con:c", " idp:", " con:c:0", " idp:k idp:j", " grp:x", " aft:g:settled grp:h exp:9  fair:f", " grp:g aft:g", " exp:0 exp:0",
		" fair:f:", " aft:g:settle", " idp:k HTTP/1.1", "\x00",
		" idp:@", " idp:\x00", " idp:\r\r", " a" + strings.Repeat("b", 250) + ":", " idp:" + strings.Repeat("k", 250), " Idp:k", "0 x:",
	} {
		f.Add([]byte(s), uint32(9), 12)
		f.Add([]byte(strings.Repeat("0", 220)+"7"+s), uint32(1), 240)
	}
	f.Fuzz(func(t *testing.T, tags []byte, maxJobSize uint32, cut int) {
		if len(tags) > maxFuzzInput {
			t.Skip("longer inputs show nothing new and take long")
		}
		for _, line := range []string{"put 1 2 3 " + string(tags), "put 1 2 3 4" + string(tags)} {
			input := line + "\r\nstats\r\nX\r\n" + followUp
			if !extensionLine.MatchString(input) {
				checkWith(t, input, maxJobSize, true, false, []int{cut, cut + 1, cut + 7})
			}
		}
	})
}
