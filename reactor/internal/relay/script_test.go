package relay

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/reactor/internal/trunk"
)

var update = flag.Bool("update", false, "write what the scripts in testdata do")

// The scripts in testdata say what happens, a line each, and behind it, indented, what a gateway does.
func TestGatewaysDoWhatTheScriptsSay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/gateway/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			r, clients := newRig(t), make(map[string]*testConn)
			playScript(t, name, func(line string) {
				r.play(clients, line)
				r.run()
			}, r.take)
		})
	}
}

// playScript calls play for each line of a script that says what happens, and compares what that notes with what the
// script says.
func playScript(t *testing.T, name string, play func(line string), notes func() string) {
	t.Helper()
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for line := range strings.Lines(string(want)) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		got.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		play(line)
		for s := range strings.Lines(notes()) {
			fmt.Fprintf(&got, "\t%s\n", strings.TrimSpace(s))
		}
	}
	if !*update {
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("it does\n%s", got.Bytes())
		}
	} else if err := os.WriteFile(name, got.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// plain is what stands in a script for bytes of clients.
func plain(s string) string { return strings.NewReplacer(`\s`, " ", `\r`, "\r", `\n`, "\n").Replace(s) }

// play does what a line of a script says. Words are separated by spaces; \r\n and \s stand for bytes of clients.
func (r *rig) play(clients map[string]*testConn, line string) {
	r.t.Helper()
	w := strings.Fields(line)
	text := func(i int) string { return plain(w[i]) }
	number := func(i int) int {
		n, err := strconv.Atoi(w[i])
		if err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	flags := func(i int, word string, bit uint8) uint8 {
		if len(w) > i && w[i] == word {
			return bit
		}
		return 0
	}
	c := clients[cmp.Or(w[len(w)-1], "")]
	if len(w) > 1 && clients[w[1]] != nil {
		c = clients[w[1]]
	}
	switch w[0] {
	case "leader": // version term fence
		r.connect(trunk.Welcome{
			Version: uint16(number(1)), Extensions: true, MaxJobSize: maxJob, Term: uint64(number(2)), Fence: uint64(number(3)),
		})
	case "trunk-ends":
		r.Disconnected(r.now, errors.New("the other side has ended it"))
	case "wait":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			r.t.Fatal(err)
		}
		r.now += d
		if err := r.Check(); err != nil {
			r.note("the gateway gives up")
			r.Disconnected(r.now, err)
		}
	case "client":
		clients[w[1]] = r.client(w[1])
	case "sends":
		c.send(text(2))
	case "fills": // so many bytes
		c.send(strings.Repeat("x", number(2)))
	case "floods": // with so many bytes of replies
		r.tell(replies(c.client.channel, 0, trunk.More, strings.Repeat("x", number(2))))
	case "half-closes":
		c.halfClose()
	case "leaves":
		c.leave()
	case "takes": // nothing, or all that it is owed
		c.slow, c.owed = w[2] == "nothing", 0
		c.settle()
	case "read": // what comes when it is read once more
		c.unread = []byte(text(2))
	case "replies": // client answered text [more]
		r.tell(replies(c.client.channel, number(2), flags(4, "more", trunk.More), text(3)))
	case "uses":
		r.tell(says(c.client.channel, trunk.Uses, w[2]))
	case "credit":
		r.tell(credit(c.client.channel, number(2)))
	case "ends": // client executed [reset]
		r.tell(trunk.Item{
			Kind: trunk.KindEnd, Channel: c.client.channel, Number: uint32(number(2)), Flags: flags(3, "reset", trunk.Reset),
		})
	case "retires":
		r.tell(trunk.Item{Kind: trunk.KindRetire})
	case "pong":
		r.tell(trunk.Item{Kind: trunk.KindPong, Number: r.contact.sent})
	case "applied": // index, and pairs of a client and the offset of a command that has reserved a job
		var list []journal.Effect
		for i := 2; i+1 < len(w); i += 2 {
			list = append(list, journal.Effect{
				Session: clients[w[i]].client.session, Offset: uint64(number(i + 1)), ID: uint64(100 + i), Kind: journal.EffectHold,
			})
		}
		r.Applied(uint64(number(1)), list, false)
	case "log-lost":
		r.Applied(0, nil, true)
	case "number-gone":
		r.Disconnected(r.now, ErrNumberGone)
	case "memory":
		r.most = number(1)
	case "width":
		r.width = number(1)
	case "shutdown":
		r.Finish()
		for _, c := range r.conns {
			c.settle()
		}
		r.Leave()
	default:
		r.t.Fatalf("%s: what is that?", line)
	}
}
