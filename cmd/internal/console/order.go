package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
	"trellis/codec"
)

const (
	// maxForm is the largest form or JSON in bytes that is read, but for a put.
	maxForm = 256 << 10
	// maxPut is the largest body in bytes of a job that is put here.
	maxPut = 1 << 20
	// maxIDs is how many jobs one change may name.
	maxIDs = 1000
	// maxPause is how long a tube may be paused here, in seconds.
	maxPause = 10 * 365 * 86400
)

// order is what somebody wants to have done.
type order struct {
	Tube string   `json:"-"`
	IDs  []uint64 `json:"ids,omitempty"`

	State   client.State `json:"state,omitempty"`
	To      string       `json:"to,omitempty"`
	Count   uint32       `json:"count,omitempty"`
	Seconds uint32       `json:"seconds,omitempty"`

	Pri   uint32 `json:"pri,omitempty"`
	Delay uint32 `json:"delay,omitempty"`
	TTR   uint32 `json:"ttr,omitempty"`
	Key   string `json:"key,omitempty"`
	Body  string `json:"body,omitempty"`

	Attempts uint32 `json:"attempts,omitempty"`

	Settings []string `json:"settings,omitempty"`
}

// field is a value of an order.
type field struct {
	name     string // in forms and in JSON
	schema   schema
	optional bool                                // in JSON
	read     func(o *order, form []string) error // takes it from a form
	check    func(o *order, ch *change) error    // nil: all values are right
	detail   func(o *order) string               // what the log of actions tells of it; nil: nothing
}

// number is a field with a number.
func number(name string, least, most uint32, about string, of func(*order) *uint32) *field {
	s := schema{"type": "integer", "minimum": least, "maximum": most}
	if about != "" {
		s["description"] = about
	}
	return &field{
		name: name, schema: s,
		read: func(o *order, form []string) error {
			n, err := strconv.ParseUint(strings.TrimSpace(first(form)), 10, 32)
			if err != nil {
				return inputf("%s must be a whole number from 0 to 4294967295", name)
			}
			*of(o) = uint32(n)
			return nil
		},
		check: func(o *order, _ *change) error {
			switch n := *of(o); {
			case n < least:
				return inputf("%s must be at least %d", name, least)
			case n > most:
				return inputf("%s must be at most %d", name, most)
			}
			return nil
		},
	}
}

// ofPut is number for a job that is put, where 0 stands for what is not given.
func ofPut(name, about string, of func(*order) *uint32) *field {
	f := number(name, 0, math.MaxUint32, about, of)
	f.schema["default"], f.optional = 0, true
	return f
}

// telling has the log of actions tell a field.
func telling(f *field, detail func(o *order) string) *field {
	f.detail = detail
	return f
}

func first(form []string) string {
	if len(form) == 0 {
		return ""
	}
	return form[0]
}

var (
	idsField = &field{
		name:   "ids",
		schema: schema{"type": "array", "items": schema{"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": maxIDs},
		read: func(o *order, form []string) error {
			if len(form) > maxIDs {
				return inputf("more than %d jobs", maxIDs)
			}
			for _, s := range form {
				id, err := parseID(s)
				if err != nil {
					return err
				}
				o.IDs = append(o.IDs, id)
			}
			return nil
		},
	}
	stateField = &field{
		name: "state", schema: schema{"type": "string", "enum": client.States},
		read: func(o *order, form []string) error {
			o.State = client.State(first(form))
			return nil
		},
		check: func(o *order, ch *change) error {
			if _, err := client.ParseState(string(o.State)); err != nil || o.State == client.Reserved && ch.verb == "move" {
				return inputf("state must be ready, delayed or buried, or, to delete, reserved")
			}
			return nil
		},
		detail: func(o *order) string { return string(o.State) },
	}
	toField = &field{
		name: "to", schema: schema{"type": "string", "maxLength": 200, "description": "The name of a tube"},
		read: func(o *order, form []string) error {
			o.To = strings.TrimSpace(first(form))
			return nil
		},
		check: func(o *order, _ *change) error {
			if client.CheckTube(o.To) != nil {
				return inputf("no tube can have the name %q", line(o.To, 40))
			}
			return nil
		},
		detail: func(o *order) string { return "to tube " + o.To },
	}
	countField = telling(number("count", 1, math.MaxUint32, "How many at most",
		func(o *order) *uint32 { return &o.Count }),
		func(o *order) string { return "at most " + operate.Count(o.Count) })
	secondsField = telling(number("seconds", 0, maxPause, "How long; 0 ends a pause",
		func(o *order) *uint32 { return &o.Seconds }),
		func(o *order) string { return fmt.Sprintf("%d s", o.Seconds) })
	attemptsField = telling(number("attempts", 0, math.MaxUint32, "After how many; 0 ends that",
		func(o *order) *uint32 { return &o.Attempts }),
		func(o *order) string { return operate.Counted(o.Attempts, "attempt") })
	settingsField = &field{
		name: "settings",
		schema: schema{
			"type": "array", "items": schema{"type": "string"}, "minItems": 1,
			"description": "Such as rate=10/1, as set-tube has them. A key without a value gets the default.",
		},
		read: func(o *order, form []string) error {
			o.Settings = form
			return nil
		},
		check: func(o *order, _ *change) error {
			if len(o.Settings) == 0 {
				return inputf("no setting was changed")
			}
			for i, pair := range o.Settings {
				var err error
				if o.Settings[i], err = operate.InSeconds(pair); err != nil {
					return inputf("%s", line(err.Error(), nameRunes))
				}
				if !codec.ValidPair(o.Settings[i]) {
					return inputf("%s is not a key of set-tube with a value that it may have", line(pair, nameRunes))
				}
			}
			return nil
		},
		detail: func(o *order) string { return strings.Join(o.Settings, " ") },
	}

	priField   = ofPut("pri", "", func(o *order) *uint32 { return &o.Pri })
	delayField = ofPut("delay", "seconds", func(o *order) *uint32 { return &o.Delay })
	ttrField   = ofPut("ttr", "seconds", func(o *order) *uint32 { return &o.TTR })
	keyField   = &field{
		name: "key", optional: true,
		schema: schema{
			"type": "string", "maxLength": 64,
			"description": "No second job with the key gets into the tube while this one is there. Needs idp.",
		},
		read: func(o *order, form []string) error {
			o.Key = strings.TrimSpace(first(form))
			return nil
		},
		check: func(o *order, _ *change) error {
			if o.Key != "" && (client.CheckTube(o.Key) != nil || len(o.Key) > 64) {
				return inputf("a key has 1 to 64 of the characters that names of tubes have")
			}
			return nil
		},
		detail: func(o *order) string {
			if o.Key == "" {
				return ""
			}
			return "key " + o.Key
		},
	}
	bodyField = &field{
		name: "body", optional: true,
		schema: schema{"type": "string", "default": "", "description": fmt.Sprintf("At most %d bytes in UTF-8.", maxPut)},
		read: func(o *order, form []string) error {
			o.Body = strings.ReplaceAll(first(form), "\r\n", "\n") // a form has CR LF for each line break of a text field
			return nil
		},
		check: func(o *order, _ *change) error {
			if len(o.Body) > maxPut {
				return inputf("a body has at most %s here, and this one %s: trellis put takes larger ones",
					operate.Counted(maxPut, "byte"), operate.Count(len(o.Body)))
			}
			return nil
		},
		detail: func(o *order) string { return operate.Counted(len(o.Body), "byte") },
	}
)

// detail tells what an order says beside what it is done to.
func (ch *change) detail(o *order) string {
	var parts []string
	for _, f := range ch.fields {
		if f.detail == nil {
			continue
		}
		if part := f.detail(o); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// check completes an order by the path, and checks it.
func (o *order) check(r *request, ch *change) (err error) {
	switch ch.to {
	case toTube:
		if o.Tube, err = r.tube(); err != nil {
			return err
		}
	case toConnection:
		id, err := parseID(r.PathValue("connection"))
		if err != nil {
			return err
		}
		o.IDs = []uint64{id}
	case toJob:
		id, err := r.id()
		if err != nil {
			return err
		}
		o.IDs = []uint64{id}
	case toJobs:
		if len(o.IDs) == 0 {
			return inputf("no job was chosen")
		}
		if len(o.IDs) > maxIDs {
			return inputf("more than %d jobs", maxIDs)
		}
	}
	for _, f := range ch.fields {
		if f.check == nil {
			continue
		}
		if err := f.check(o, ch); err != nil {
			return err
		}
	}
	return nil
}

// orderOfForm reads an order from a form.
func orderOfForm(r *request, ch *change) (*order, error) {
	o := new(order)
	r.Body = http.MaxBytesReader(r.w, r.Body, limitOf(ch))
	if err := r.ParseForm(); err != nil {
		return nil, inputf("the form cannot be read, or is too large")
	}
	for _, f := range ch.fields {
		values := r.PostForm[f.name]
		switch f {
		case idsField:
			values = r.PostForm["id"] // of each check box
		case settingsField:
			values = changedSettings(r.PostForm)
		}
		if err := f.read(o, values); err != nil {
			return nil, err
		}
	}
	return o, o.check(r, ch)
}

// changedSettings are the keys in a form that have another value than they had when it was shown. What somebody else
// has changed since stays so, and a burst that follows from the rate is not made a value of its own.
func changedSettings(form url.Values) (pairs []string) {
	for k := range codec.NumTubeKeys {
		key := k.String()
		if value := strings.TrimSpace(form.Get(key)); form.Has(key) && value != form.Get("was-"+key) {
			pairs = append(pairs, key+"="+value)
		}
	}
	return pairs
}

// orderOfJSON reads an order from JSON.
func orderOfJSON(r *request, ch *change) (*order, error) {
	// A page of another site can send JSON only with permission, which it does not get.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, inputf("the content type must be application/json")
	}
	o := new(order)
	d := json.NewDecoder(http.MaxBytesReader(r.w, r.Body, limitOf(ch)))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil && !errors.Is(err, io.EOF) {
		return nil, inputf("not the JSON that is wanted: %s", line(err.Error(), nameRunes))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, inputf("something follows the JSON")
	}
	if ch.to != toJobs && o.IDs != nil {
		return nil, inputf("ids are not wanted here")
	}
	return o, o.check(r, ch)
}

func limitOf(ch *change) int64 {
	if ch.verb == "put" {
		return 6*maxPut + maxForm // a byte of a body can take six: as \u0000 in JSON, and as %0D%0A in a form
	}
	return maxForm
}
