package codec

import (
	"bytes"
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
		{" grp:g", Tags{}},
		{" IDP:k", Tags{}},
		{" idp:k x", Tags{}},
	} {
		line := "put 4294967295 4294967295 4294967295 1" + c.tags + "\r\n"
		for _, extensions := range []bool{true, false} {
			for cut := range len(line) {
				d := Decoder{MaxJobSize: 10, Extensions: extensions}
				// What an earlier command left must not show.
				cmd := Command{Tags: &Tags{Unique: []byte("old"), Limited: []byte("old"), Limit: 7}}
				if n, ok := d.Next([]byte(line[:cut]), &cmd); ok || n != cut {
					t.Fatalf("%q: a command after %d bytes", line, cut)
				}
				if _, ok := d.Next([]byte(line[cut:]+"a\r\n"), &cmd); !ok {
					t.Fatalf("%q: no command", line)
				}
				good := extensions && (c.want.Unique != nil || c.want.Limited != nil)
				if !good {
					if cmd.Op != OpBadFormat || cmd.CountAs != OpPut {
						t.Fatalf("%q with extensions %v is %v, counted as %v", line, extensions, cmd.Op, cmd.CountAs)
					}
					continue
				}
				got := cmd.Tags
				if cmd.Op != OpPut || got == nil || !bytes.Equal(got.Unique, c.want.Unique) || got.Seconds != c.want.Seconds ||
					!bytes.Equal(got.Limited, c.want.Limited) || got.Limit != c.want.Limit {
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

// However a put is cut, its tags come out as they do from one piece, and only puts that
// are malformed without extensions have some.
func FuzzTags(f *testing.F) {
	for _, s := range []string{" idp:k", " idp:k:9", " con:c:2 idp:k:0", "  con:c", " idp:", " con:c:0", " idp:k idp:j", " grp:x", " idp:k HTTP/1.1", "\x00"} {
		f.Add([]byte(s), 12)
	}
	f.Fuzz(func(t *testing.T, tags []byte, cut int) {
		line := append([]byte("put 1 2 3 1"), tags...)
		if bytes.Contains(line, crlf) || len(line)+2 > MaxLine {
			return
		}
		line = append(line, crlf...)
		cut = min(max(cut, 0), len(line))
		whole, pieces, stock := Decoder{MaxJobSize: 9, Extensions: true}, Decoder{MaxJobSize: 9, Extensions: true}, Decoder{MaxJobSize: 9}
		var a, b, c Command
		whole.Next(line, &a)
		if _, ok := pieces.Next(line[:cut], &b); !ok {
			pieces.Next(line[cut:], &b)
		}
		stock.Next(line, &c)
		tagged := a.Op == OpPutBegin && a.Tags != nil
		if a.Op != b.Op || tagged != (b.Op == OpPutBegin && b.Tags != nil) || tagged &&
			(!bytes.Equal(a.Tags.Unique, b.Tags.Unique) || !bytes.Equal(a.Tags.Limited, b.Tags.Limited) ||
				a.Tags.Seconds != b.Tags.Seconds || a.Tags.Limit != b.Tags.Limit) {
			t.Fatalf("%q in one piece: %+v; cut at %d: %+v", line, a, cut, b)
		}
		if a.Op == OpPutBegin && tagged != (c.Op == OpBadFormat) || a.Op != OpPutBegin && a.Op != c.Op {
			t.Fatalf("%q is %+v with extensions, and %+v without", line, a, c)
		}
		if k := a.Tags; tagged && (k.Unique == nil && k.Limited == nil || len(k.Unique) > MaxKey || len(k.Limited) > MaxKey ||
			k.Limited != nil && k.Limit == 0) {
			t.Fatalf("%q: %+v", line, k)
		}
	})
}
