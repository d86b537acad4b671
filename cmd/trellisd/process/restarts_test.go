//go:build proof

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/trellisd/internal/servertest"
)

// A restartedWorker is a program of a document, in a folder of its own with the program ./work, which it runs for each job.
type restartedWorker struct {
	name, text string
	files      map[string]string // that it needs besides
	start      []string
	missing    func(t *testing.T) // skips the test without its library
}

// work says that it has begun, and waits until it may end.
const work = "#!/bin/sh\necho \"$1\" >>begun\nuntil [ -e end ]; do sleep 0.01; done\n"

// Workers as the documents have them go on when the server is killed and started again: the job that one of them does
// meanwhile is not given to the other. It is without lingering, so that the test would see it.
func TestWorkersOfTheDocumentsOutliveTheServer(t *testing.T) {
	t.Parallel()
	trellis, err := servertest.Program(t.TempDir(), "trellis")
	servertest.NoError(t, err)
	for _, w := range []restartedWorker{
		{
			name: "Go", text: servertest.DocumentBlock(t, "linger-go"), start: []string{"./worker"},
		},
		{
			name: "PHP", text: servertest.DocumentBlock(t, "linger-php"), start: []string{"php", "worker"},
			files:   map[string]string{"vendor/autoload.php": "<?php require '/usr/share/php/Pheanstalk/autoload.php';"},
			missing: func(t *testing.T) { needStockClient(t, "php") },
		},
		{
			name: "Ruby", text: servertest.DocumentBlock(t, "linger-ruby"), start: []string{"ruby", "worker"},
			missing: func(t *testing.T) { needStockClient(t, "ruby") },
		},
		{
			name: "Python", text: servertest.DocumentBlock(t, "linger-python"), start: []string{"python3", "worker"},
			missing: func(t *testing.T) {
				if err := exec.Command("python3", "-c", "import greenstalk").Run(); err != nil {
					t.Skip("greenstalk is not installed; no registry that make proof asks has it")
				}
			},
		},
	} {
		for _, lingers := range []bool{true, false} {
			t.Run(w.name+map[bool]string{true: " and a tube that lingers", false: ""}[lingers], func(t *testing.T) {
				t.Parallel()
				if w.missing != nil {
					w.missing(t)
				}
				w.outlive(t, trellis, lingers)
			})
		}
	}
}

func (w *restartedWorker) outlive(t *testing.T, trellis string, lingers bool) {
	log := t.TempDir()
	server := func(port string) *servertest.Server {
		return servertest.Ready(servertest.Launch(t, "-l127.0.0.1", "-p", port, "-V", "--log-format=json", "-b", log), 1)
	}
	port := servertest.PortOf(t, wiretest.ReservedAddr(t)) // nobody else gets it while the server does not run
	s := server(port)
	if lingers {
		set := exec.Command("sh", "-euc", strings.Replace(servertest.DocumentBlock(t, "linger-set"), "trellis", trellis, 1))
		set.Env = append(os.Environ(), "TRELLIS_ADDR="+s.Addrs[0].String())
		if out, err := set.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	put := func(s *servertest.Server, bodies ...string) *servertest.Client {
		c := s.Dial(0)
		c.Send("use mail")
		c.Want("USING mail")
		for _, body := range bodies {
			c.Send(fmt.Sprint("put 0 0 3600 ", len(body)), body)
			if line := c.Line(); !strings.HasPrefix(line, "INSERTED ") {
				t.Fatal(line)
			}
		}
		return c
	}
	put(s, "first")
	dir := t.TempDir()
	w.write(t, dir, port)
	for range 2 {
		cmd := exec.Command(w.start[0], w.start[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
		servertest.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	begun := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "begun"))
		return string(text)
	}
	servertest.Await(t, "a worker does the job", func() bool { return begun() == "first\n" })

	s.Kill()
	s = server(port)
	c := put(s)
	if lingers {
		servertest.Await(t, "the other worker waits", func() bool { return strings.Contains(c.Data("stats"), "\ncurrent-waiting: 1\n") })
	} else {
		servertest.Await(t, "the other worker does the job, too", func() bool { return begun() == "first\nfirst\n" })
	}
	servertest.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	put(s, "second", "third")
	servertest.Await(t, "the workers go on", func() bool { return strings.Contains(c.Data("stats-tube mail"), "\ncmd-delete: 3\n") })
	if text := begun(); lingers && strings.Count(text, "first\n") != 1 || strings.Count(text, "second\n") != 1 || strings.Count(text, "third\n") != 1 {
		t.Errorf("the workers have begun to do %q", strings.Fields(text))
	}
}

// write writes what the worker is made of, with the port of the server.
func (w *restartedWorker) write(t *testing.T, dir, port string) {
	t.Helper()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		servertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		servertest.NoError(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	file("work", work)
	for name, text := range w.files {
		file(name, text)
	}
	text := strings.ReplaceAll(w.text, "11300", port)
	if w.start[0] != "./worker" {
		file("worker", text)
		return
	}
	servertest.NoError(t, servertest.Build(filepath.Join(dir, "worker"), file("main.go", text)))
}
