package cron

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	_ "time/tzdata" // for hosts that have no zones

	"github.com/spf13/pflag"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/quantity"
	"trellis/cmd/trellis/internal/producer"
)

// An Entry is a line of a file that says when to put what.
type Entry struct {
	Line int // its number in the file
	Tube string
	Job  client.NewJob // without its key

	name     string // that its keys begin with
	zone     *time.Location
	schedule schedule
}

// maxLine bounds a line of a file, its body included.
const maxLine = 1 << 20

// Read reads a file, and returns all of its mistakes, each with the name of the file and the line.
func Read(r io.Reader, file string) (entries []Entry, mistakes []error) {
	zone := time.UTC
	names := make(map[string]int) // the lines of entries by tube and name
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	n := 1
	mistake := func(wrong error) { mistakes = append(mistakes, fmt.Errorf("%s:%d: %w", file, n, wrong)) }
	for ; in.Scan(); n++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(text, "TZ="); ok {
			next, wrong := readZone(name)
			if wrong != nil {
				mistake(wrong)
				continue
			}
			zone = next
			continue
		}
		e, wrong := parseEntry(text, zone)
		if wrong != nil {
			mistake(wrong)
			continue
		}
		e.Line = n
		key := e.Tube + " " + e.name
		if other, ok := names[key]; ok {
			mistake(fmt.Errorf("line %d is the same, or has the same name: each job would be put once for both", other))
			continue
		}
		names[key] = n
		entries = append(entries, e)
	}
	if wrong := in.Err(); wrong != nil {
		mistake(wrong)
	}
	if len(entries) == 0 && len(mistakes) == 0 {
		mistake(errors.New("there is no entry"))
	}
	return entries, mistakes
}

func readZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, errors.New("TZ= is without a zone, such as Europe/Berlin or UTC")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("TZ=%s: there is no such zone", name)
	}
	return zone, nil
}

// parseEntry reads five fields, a tube, options and a body.
func parseEntry(text string, zone *time.Location) (Entry, error) {
	e := Entry{zone: zone}
	rest := text
	var words []string
	for range fields {
		var w string
		w, rest = word(rest)
		words = append(words, w)
	}
	e.Tube, rest = word(rest)
	if e.Tube == "" {
		return e, errors.New("an entry is five fields, a tube, options of put, and a body")
	}
	var err error
	if e.schedule, err = parseSchedule(words); err != nil {
		return e, err
	}
	if err := client.CheckTube(e.Tube); err != nil {
		return e, err
	}
	if e.Job.Body, err = e.options(rest); err != nil {
		return e, err
	}
	if e.name == "" {
		// The line decides, not its place: files of two hosts may differ in other lines.
		sum := sha256.Sum256([]byte(zone.String() + " " + text))
		e.name = fmt.Sprintf("cron.%x", sum[:8])
	}
	return e, nil
}

// options reads the options in front of the body, and returns the body.
func (e *Entry) options(rest string) (body []byte, err error) {
	var args []string
	for strings.HasPrefix(rest, "--") {
		var w string
		if w, rest = word(rest); w == "--" {
			break
		}
		args = append(args, w)
		if !strings.Contains(w, "=") {
			if w, rest = word(rest); w != "" {
				args = append(args, w)
			}
		}
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Uint32Var(&e.Job.Pri, "pri", 1024, "")
	e.Job.TTR = 60
	flags.Var(quantity.SecondsFlag(&e.Job.Delay), "delay", "")
	flags.Var(quantity.SecondsFlag(&e.Job.TTR), "ttr", "")
	flags.StringVar(&e.name, "name", "", "")
	flags.Usage = func() {}
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if e.name != "" {
		_, err = producer.KeyTag("idp", e.key(time.Time{}))
	}
	return []byte(rest), err
}

// word cuts the first word off, and the spaces behind it.
func word(s string) (first, rest string) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimLeft(s[i:], " \t")
}

// key is that of the job which is put for a time.
func (e *Entry) key(t time.Time) string { return e.name + "." + t.UTC().Format("20060102T1504Z") }

// job is what is put for a time.
func (e *Entry) job(t time.Time) *client.NewJob {
	j := e.Job
	j.Tags = []string{fmt.Sprintf("idp:%s:%d", e.key(t), keepFor/time.Second)}
	return &j
}

// Next is the first time after t at which the entry fires, in its zone.
func (e *Entry) Next(t time.Time) time.Time {
	const years = 9 // 29 February may be so far off
	t = t.In(e.zone).Truncate(time.Minute)
	for end := t.AddDate(years, 0, 0); t.Before(end); {
		t = t.Add(time.Minute)
		if e.schedule.fires(t) {
			return t
		}
	}
	return time.Time{}
}
