package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// fake is a server that answers lines with what it has for them, and others with UNKNOWN_COMMAND.
// A reply {OK}BODY gets its size and its end.
func fake(t *testing.T, replies map[string]string) (addr string) {
	t.Helper()
	return serveEach(t, listen(t), func(c net.Conn) {
		for in := bufio.NewScanner(c); in.Scan(); {
			reply, ok := replies[strings.TrimSuffix(in.Text(), "\r")]
			if !ok {
				reply = "UNKNOWN_COMMAND\r\n"
			}
			if body, ok := strings.CutPrefix(reply, "{OK}"); ok {
				reply = fmt.Sprintf("OK %d\r\n%s\r\n", len(body), body)
			}
			if _, err := io.WriteString(c, reply); err != nil {
				return
			}
		}
	})
}

const everyExtension = `{OK}---
version: "9"
max-job-size: 65535
max-tube-name-len: 200
extensions:
- capabilities
- list-jobs
- peek-tube
- set-dlq
- list-dlq
- stats-conn
- list-connections
- list-accounts
- set-tube
- list-settings
- stats-group
`

// quiet is a server of which everything is known, also times.
func quiet(t *testing.T) string {
	return fake(t, map[string]string{
		"capabilities": everyExtension,
		"stats": `{OK}---
current-jobs-urgent: 1234567
current-jobs-ready: 0
cmd-put: 999
total-jobs: 1000
max-job-size: 65535
pid: 4242
version: "1.12"
rusage-utime: 0.123456
uptime: 90061
binlog-max-size: 10485760
draining: false
id: 0123456789012345
hostname: "queue"
os: #1 SMP "x"
platform: "x86_64"
`,
		"list-tubes":                    "{OK}---\n- default\n- mail\n",
		"stats-tube default":            "{OK}---\nname: default\ncurrent-jobs-ready: 1234567\ncurrent-jobs-buried: 3\npause-time-left: 95\n",
		"stats-tube mail":               "NOT_FOUND\r\n",
		"list-jobs mail ready 100":      "{OK}---\n- id: 12\n  pri: 0\n  age: 59\n  size: 2\n- id: 3\n  pri: 4294967295\n  age: 3725\n  size: 65535\n",
		"list-jobs mail reserved 98":    "{OK}---\n- id: 4\n  pri: 1\n  age: 400000\n  size: 0\n  time-left: 61\n",
		"list-jobs mail reserved 100":   "{OK}---\n",
		"list-jobs mail delayed 100":    "{OK}---\n- id: 5\n  pri: 1\n  age: 40000000\n  size: 2000000\n  time-left: 100\n",
		"list-jobs mail buried 100":     "{OK}---\n",
		"list-jobs mail ready 10000":    "{OK}---\n- id: 12\n  pri: 0\n  age: 59\n  size: 2\n- id: 3\n  pri: 4\n  age: 3725\n  size: 65535\n",
		"list-jobs mail reserved 10000": "{OK}---\n",
		"list-jobs mail delayed 10000":  "{OK}---\n",
		"list-jobs mail buried 10000":   "{OK}---\n",
		"peek 12":                       "FOUND 12 7\r\nhe\nllo!\r\n",
		"peek 3":                        "FOUND 3 110\r\n" + strings.Repeat("häßlich..", 10) + "\r\n",
		"stats-job 12":                  "{OK}---\nid: 12\ntube: mail\nstate: ready\npri: 0\nage: 59\ndelay: 0\nttr: 120\n",
		"set-dlq mail 5 mail.dead":      "DLQ_SET\r\n",
		"set-dlq mail 0 mail":           "DLQ_SET\r\n",
		"set-dlq mail 6 mail":           "OUT_OF_MEMORY\r\n",
		"set-tube mail linger=60":       "OUT_OF_MEMORY\r\n",
		"list-dlq":                      "{OK}---\n- tube: \"17\"\n  max-attempts: 3\n  dead-tube: \"18\"\n- tube: \"mail\"\n  max-attempts: 5\n  dead-tube: \"mail.dead\"\n",
		"list-connections 1000 0":       "{OK}" + connections,
		"list-accounts":                 "{OK}" + accounts,
		"stats-group import.17":         "{OK}---\nname: \"import.17\"\npending: 1234567\nburied: 3\ncomplete: false\nwaiting-jobs: 1\n",
		"stats-group done":              "NOT_FOUND\r\n",
		"list-connections 1 0":          "{OK}" + connections[:strings.Index(connections, "- id: 9")],
		"delete 1":                      "INTERNAL_ERROR\r\n",
	})
}

const accounts = `---
- name: "acme"
  patterns: "acme/*,17"
  jobs: 1234567
  max-jobs: 2000000
  refused-jobs: 0
  memory: 3100000
  max-memory: 2147483648
  refused-memory: 3
  tubes: 17
  max-tubes: 1000
  refused-tubes: 0
  keys: 0
  max-keys: 100000
  refused-keys: 0
  connections: 2
  max-connections: 500
  refused-connections: 0
  rate: 5000
  rate-waits: 12
- name: "7"
  patterns: "*"
  jobs: 0
  max-jobs: 0
  refused-jobs: 0
  memory: 0
  max-memory: 0
  refused-memory: 0
  tubes: 1
  max-tubes: 0
  refused-tubes: 0
  keys: 0
  max-keys: 0
  refused-keys: 0
  connections: 0
  max-connections: 0
  refused-connections: 0
  rate: 0
  rate-waits: 0
`

const connections = `---
- id: 7
  addr: "127.0.0.1:50122"
  tube: default
  watching: [default, 17]
  reserved-jobs: [2, 3]
  producer: true
  worker: true
  waiting: false
  name: ""
  watching-count: 2
  reserved-count: 2
  waiting-time: 0
  age: 12
  commands: 1234
  bytes-in: 240
  bytes-out: 3100000
- id: 9
  addr: "[::1]:5"
  tube: mail
  watching: [mail]
  reserved-jobs: []
  producer: false
  worker: true
  waiting: true
  name: "billing"
  watching-count: 1
  reserved-count: 0
  waiting-time: 3600
  age: 86400
  commands: 1
  bytes-in: 9
  bytes-out: 0
`

func TestTablesAndObjects(t *testing.T) {
	const file = "testdata/operate/quiet.txt"
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, addr: quiet(t), exact: true}
	golden(t, file, p.run(string(script)))
}

// hostileText has what controls terminals, what is no UTF-8, and what changes the direction of text.
const hostileText = "\x1b[2J\x1b]0;owned\x07\x9b31m\u009b31m\x7f\x00\xff\xc3\u202egnp.exe\u2066\u2028\ufeff\r\b"

// hostile is a server whose every word is hostile, as far as one reply is told from the next.
func hostile(t *testing.T) string {
	h := strings.ReplaceAll(hostileText, "\n", "")
	return fake(t, map[string]string{
		"capabilities":               everyExtension + "- " + h + "\n",
		"stats":                      "{OK}---\nversion: \"" + h + "\"\n" + h + ": 5\nid: " + h + "\n",
		"list-tubes":                 "{OK}---\n- default\n- mail\n",
		"stats-tube default":         "{OK}---\nname: \"" + h + "\"\ncurrent-jobs-ready: " + h + "\npause-time-left: " + h + "\n",
		"stats-tube mail":            "{OK}---\nname: mail\n" + h + ": [" + h + "]\n",
		"list-jobs mail ready 100":   "{OK}---\n- id: 1\n  pri: " + h + "\n  age: " + h + "\n  size: " + h + "\n  time-left: " + h + "\n",
		"list-jobs mail ready 10000": "{OK}---\n- id: 1\n  pri: " + h + "\n  age: " + h + "\n  size: " + h + "\n",
		"peek 1":                     fmt.Sprintf("FOUND 1 %d\r\n%s\r\n", len(hostileText), hostileText),
		"stats-job 1":                "{OK}---\nid: 1\ntube: \"" + h + "\"\nstate: " + h + "\n",
		"list-dlq":                   "{OK}---\n- tube: \"" + h + "\"\n  max-attempts: " + h + "\n  dead-tube: \"" + h + "\"\n",
		"list-connections 1000 0":    "{OK}---\n- id: 7\n  addr: \"" + h + "\"\n  tube: " + h + "\n  name: \"" + h + "\"\n  waiting-time: " + h + "\n",
		"delete 1":                   "NO" + " " + h + "\r\n",
		"peek 2":                     h + "\r\n",
		"pause-tube mail 5":          "OK 5\r\n" + h + "\r\n",
		"use default":                "USING " + h + "\r\n",
		"put 0 0 60 1":               h + "\r\n",
		"kick-job 1":                 "KICKED " + h + "\r\n",
		"set-dlq mail 5 x":           "NO " + h + "\r\n",
		"auth tr_x":                  "NO " + h + "\r\n",
		"list-tube-used":             "USING " + h + "\r\n",
		"list-tubes-watched":         "OK " + h + "\r\n",
	})
}

func TestNothingThatAServerSaysReachesATerminalAsItCame(t *testing.T) {
	addr := hostile(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("tr_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"tubes", "stats", "stats --tube default", "stats --tube mail", "stats --job 1", "jobs mail --state ready", "jobs mail --state ready --grep .",
		"peek 1", "connections", "dlq list", "delete 1", "peek 2", "pause mail 5", "top --once -i 100ms", "put x", "kick 1", "bury 1",
		"copy 1 x", "move 1 x", "clear mail --yes", "dlq set mail 5 x", "stats --token-file " + token,
	} {
		for _, format := range formats {
			out, errs, _ := trellis(t, append(strings.Fields(line), "-o", format, "-a", addr)...)
			if out+errs == "" {
				t.Errorf("%s -o %s: says nothing", line, format)
			}
			if text := out + errs; !plain(text) || strings.ContainsAny(text, "\t\ufffd") && format == "table" {
				t.Errorf("%s -o %s: %q", line, format, text)
			}
			if strings.Count(errs, "\n") > 1 {
				t.Errorf("%s: the error has several lines: %s", line, errs)
			}
		}
	}
}

func TestCommandsWithoutAFormatMakeVisibleWhatAServerSays(t *testing.T) {
	addr := hostile(t)
	for _, line := range []string{"ping", "export mail", "export mail --state ready", "bench run cycle -t 100ms --warmup 0s", "work mail -- true"} {
		out, errs, _ := trellis(t, append(strings.Fields(line), "-a", addr)...)
		if text := out + errs; text == "" || !plain(text) {
			t.Errorf("%s: %q", line, text)
		}
	}
}

func TestWatchMakesVisibleWhatAServerSaysOfNewJobs(t *testing.T) {
	h := strings.ReplaceAll(hostileText, "\r", "")
	var looks atomic.Int64
	addr := serveEach(t, listen(t), func(c net.Conn) {
		for in := bufio.NewScanner(c); in.Scan(); {
			reply := "UNKNOWN_COMMAND\r\n"
			switch line := strings.TrimSuffix(in.Text(), "\r"); {
			case line == "capabilities":
				reply = everyExtension
			case strings.HasPrefix(line, "list-jobs mail "):
				if reply = "---\n"; strings.HasPrefix(line, "list-jobs mail ready") && looks.Add(1) > 1 {
					reply += "- id: 9\n  pri: " + h + "\n  age: " + h + "\n  size: " + h + "\n"
				}
			case line == "peek 9":
				reply = "FOUND 9 3\r\nEND\r\n"
			}
			if body := strings.TrimPrefix(reply, "{OK}"); strings.HasPrefix(body, "---") {
				reply = fmt.Sprintf("OK %d\r\n%s\r\n", len(body), body)
			}
			if _, err := io.WriteString(c, reply); err != nil {
				return
			}
		}
	})
	for _, format := range formats {
		looks.Store(0)
		w := startTool(t, "watch", "mail", "-i", "100ms", "--state", "ready", "-o", format, "-a", addr)
		w.awaitOut("END")
		if out := w.out.String(); !plain(out) {
			t.Errorf("%s: %q", format, out)
		}
		_ = w.cmd.Process.Signal(os.Interrupt)
		w.wait()
	}
}
