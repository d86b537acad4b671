package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
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
		"list-dlq":                      "{OK}---\n- tube: \"17\"\n  max-attempts: 3\n  dead-tube: \"18\"\n- tube: \"mail\"\n  max-attempts: 5\n  dead-tube: \"mail.dead\"\n",
		"list-connections 1000 0":       "{OK}" + connections,
		"list-connections 1 0":          "{OK}" + connections[:strings.Index(connections, "- id: 9")],
		"delete 1":                      "INTERNAL_ERROR\r\n",
	})
}

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
	})
}

func TestNothingThatAServerSaysReachesATerminalAsItCame(t *testing.T) {
	addr := hostile(t)
	for _, line := range []string{
		"tubes", "stats", "stats --tube default", "stats --tube mail", "stats --job 1", "jobs mail --state ready", "jobs mail --state ready --grep .",
		"peek 1", "connections", "dlq list", "delete 1", "peek 2", "pause mail 5",
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
