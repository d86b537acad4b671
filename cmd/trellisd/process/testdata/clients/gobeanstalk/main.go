// Gobeanstalk does with the Go client what the scripts beside it do with theirs: see clients_test.go.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

func main() {
	port, token := os.Args[2], os.Args[3] // os.Args[1] is a script's name
	var client *beanstalk.Conn
	begin := func() (err error) {
		if client, err = beanstalk.Dial("tcp", "127.0.0.1:"+port); err != nil {
			return err
		}
		if token != "" {
			_, _, err := beanstalk.NewTube(client, "auth/"+token).PeekReady()
			if err != nil && !errors.Is(err, beanstalk.ErrNotFound) {
				return err
			}
		}
		return job(client)
	}
	served := report(begin)
	if bufio.NewScanner(os.Stdin).Scan() {
		if served {
			report(func() error { return job(client) })
		} else {
			fmt.Println("error refused before")
		}
		report(begin)
	}
}

// job puts a job and works on it.
func job(c *beanstalk.Conn) error {
	if _, err := beanstalk.NewTube(c, "billing/x").Put([]byte("x"), 0, 0, time.Minute); err != nil {
		return err
	}
	id, _, err := beanstalk.NewTubeSet(c, "billing/x").Reserve(time.Minute)
	if err != nil {
		return err
	}
	return c.Delete(id)
}

// report prints how a step went, in a line.
func report(step func() error) bool {
	switch err := step(); {
	case err == nil:
		fmt.Println("done")
		return true
	case errors.Is(err, beanstalk.ErrUnknown):
		fmt.Println("error UNKNOWN_COMMAND")
	default:
		fmt.Println("error", err)
	}
	return false
}
