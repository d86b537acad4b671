package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/options"
)

const manual = `NAME
    x - a thing

OPTIONS
    Some text, two
    lines.

    -a, --all FILE
        Takes
          one   two
          .three
        and 'ends'.

        Goes on.

    -h  Helps.

EXIT STATUS
    0     fine
    129, 130
          a signal
EXAMPLES
    x -a y
        Does \it.
`

func TestTheLayoutBecomesMarkup(t *testing.T) {
	want := `.TH TRELLISD 8 "2024-02-29" "trellisd 1.0" "System administration"
.nh
.ad l
.SH NAME
.PP
x \- a thing
.SH OPTIONS
.PP
Some text, two
lines.
.TP
\fB\-a\fP, \fB\-\-all\fP FILE
Takes
.nf
  one   two
  .three
.fi
and \(aqends\(aq.
.IP
Goes on.
.TP
\fB\-h\fP
Helps.
.SH EXIT STATUS
.TP
\fB0\fP
fine
.TP
\fB129\fP, \fB130\fP
a signal
.SH EXAMPLES
.TP
x \fB\-a\fP y
Does \eit.
`
	if got := page(manual, "1.0", "2024-02-29"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestThePageSaysWhatTheManualSays(t *testing.T) {
	var words []string
	unescape := strings.NewReplacer(`\fB`, "", `\fP`, "", `\-`, "-", `\e`, `\`, `\(ha`, "^", `\(ti`, "~", `\(aq`, "'", `\(ga`, "`", `\&`, "")
	for line := range strings.Lines(page(options.Manual, "", "")) {
		if title, ok := strings.CutPrefix(line, ".SH "); ok {
			line = title
		} else if strings.HasPrefix(line, ".") {
			continue
		}
		words = append(words, strings.Fields(unescape.Replace(line))...)
	}
	if want := strings.Fields(options.Manual); !slices.Equal(words, want) {
		for i := range words {
			if i >= len(want) || words[i] != want[i] {
				t.Fatalf("differs from: %s", strings.Join(words[i:min(i+10, len(words))], " "))
			}
		}
		t.Fatalf("%d words, want %d", len(words), len(want))
	}
}

func TestGroffFindsNothingToWarnOf(t *testing.T) {
	path, err := exec.LookPath("groff")
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("%v (make test installs it)", err)
	}
	cmd := exec.Command(path, "-man", "-Tutf8", "-ww", "-z")
	cmd.Stdin = strings.NewReader(page(options.Manual, "1.0", "2024-02-29"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
