package jobfile

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestALineIsWrittenAsDocumented(t *testing.T) {
	for want, j := range map[string]Job{
		`{"id":7,"tube":"mail","state":"delayed","pri":10,"age":5,"delay":30,"ttr":60,"time-left":25,"reserves":1,"body":"hello"}`: {
			ID: 7, Tube: "mail", State: "delayed", Pri: new(uint32(10)), Age: 5, Delay: new(uint32(30)), TTR: new(uint32(60)), TimeLeft: new(uint32(25)), Reserves: 1, Body: []byte("hello"),
		},
		`{"pri":0,"body":""}`:                     {Pri: new(uint32(0)), Body: []byte{}},
		`{"body-base64":"/w=="}`:                  {Body: []byte{0xff}},
		`{"body":"<a href=\"&\">\n\u0000\u001b"}`: {Body: []byte("<a href=\"&\">\n\x00\x1b")},
	} {
		got, err := j.AppendLine([]byte("before"))
		if err != nil || string(got) != "before"+want+"\n" {
			t.Errorf("%v\n%swant\n%s", err, got, want)
		}
	}
}

func TestEveryJobComesBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Ptr(rapid.Uint32(), true)
		j := Job{
			ID: rapid.Uint64().Draw(t, "id"), Tube: rapid.StringMatching(`[a-z+/;.$_()-]{0,20}`).Draw(t, "tube"),
			State: rapid.SampledFrom([]string{"", "ready", "buried"}).Draw(t, "state"),
			Pri:   number.Draw(t, "pri"), Delay: number.Draw(t, "delay"), TTR: number.Draw(t, "ttr"), TimeLeft: number.Draw(t, "left"),
			Age: rapid.Uint64().Draw(t, "age"), Kicks: rapid.Uint64().Draw(t, "kicks"),
			Key: rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "key"), KeySeconds: number.Draw(t, "seconds"),
			Body: rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "body"),
		}
		text, err := j.AppendLine(nil)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, '\n') != len(text)-1 {
			t.Fatalf("not one line: %q", text)
		}
		back, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.Body, j.Body) {
			t.Fatalf("the body is %q, was %q", back.Body, j.Body)
		}
		back.Body = j.Body
		if !reflect.DeepEqual(back, j) {
			t.Fatalf("%+v\nwas %+v", back, j)
		}
	})
}

func TestLinesThatWouldGiveAnotherJobThanWasMeantAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"body":"a","prio":1}`:             "unknown field",
		`{"pri":1}`:                         "neither body",
		`{"body":"a","body-base64":"YQ=="}`: "both",
		`{"body":"a"} {"body":"b"}`:         "more than one",
		`{"body":"a"}]`:                     "more than one",
		`{"body":"a","pri":-1}`:             "pri",
		`{"body":"a","pri":4294967296}`:     "pri",
		`{"body":"a","delay":1.5}`:          "delay",
		`{"body-base64":"YQ"}`:              "base64",
		`{"body":5}`:                        "string",
		`{"body":null}`:                     "neither body",
		"{\"body\":\"\xff\"}":               "not UTF-8",
		`{"body":"\ud800"}`:                 "surrogate",
		`{"body":"\uDC00"}`:                 "surrogate",
		`{"body":"\ud800\ud800"}`:           "surrogate",
		`{"body":"\ud800x\udc00"}`:          "surrogate",
		`null`:                              "neither body",
		`[]`:                                "array",
		`"a"`:                               "string",
		``:                                  "EOF",
	} {
		if j, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, j, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"body":"\ud83d\ude00"}`:   "😀",
		`{"body":"\\ud800"}`:        `\ud800`,
		`{"body":"\\\ud83d\ude00"}`: `\😀`,
	} {
		if j, err := Parse([]byte(text)); err != nil || string(j.Body) != want {
			t.Errorf("%s: %q, %v", text, j.Body, err)
		}
	}
}

func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	in := "one\n\n" + long + "\n" + long[:100] + "\n" + long[:101] + "\r\nlast"
	for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
		l := NewLines(r, 100)
		for i, want := range []string{"one", "", "too long", long[:100], "too long", "last"} {
			got, err := l.Next()
			if want == "too long" {
				if !errors.Is(err, ErrTooLong) {
					t.Errorf("line %d: %v", i+1, err)
				}
			} else if err != nil || string(got) != want {
				t.Errorf("line %d: %q, %v", i+1, got, err)
			}
			if l.Number() != i+1 {
				t.Errorf("line %d has the number %d", i+1, l.Number())
			}
		}
		if _, err := l.Next(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if cap(l.line) > 1024 {
			t.Errorf("%d bytes are held for lines of 100", cap(l.line))
		}
	}
	l := NewLines(iotest.ErrReader(errors.ErrUnsupported), 100)
	if _, err := l.Next(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":7,"tube":"mail","state":"delayed","pri":10,"delay":30,"ttr":60,"time-left":25,"body":"hello"}`))
	f.Add([]byte(`{"body-base64":"/w=="}`))
	f.Add([]byte(`{"body":"\ud83d\ude00\\"}`))
	f.Add([]byte(`{"body":"a"} {`))
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := Parse(text)
		if err != nil {
			return
		}
		again, err := j.AppendLine(nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(again)
		if err != nil || !bytes.Equal(back.Body, j.Body) || back.Tube != j.Tube {
			t.Fatalf("%q\n%q\n%v", text, again, err)
		}
	})
}
