package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// A Job is one line. Pointers are nil where the line says nothing. Times are in seconds.
type Job struct {
	ID       uint64  `json:"id,omitempty"`
	Tube     string  `json:"tube,omitempty"`
	State    string  `json:"state,omitempty"`
	Pri      *uint32 `json:"pri,omitempty"`
	Age      uint64  `json:"age,omitempty"`
	Delay    *uint32 `json:"delay,omitempty"`
	TTR      *uint32 `json:"ttr,omitempty"`
	TimeLeft *uint32 `json:"time-left,omitempty"`
	File     uint64  `json:"file,omitempty"`
	Reserves uint64  `json:"reserves,omitempty"`
	Timeouts uint64  `json:"timeouts,omitempty"`
	Releases uint64  `json:"releases,omitempty"`
	Buries   uint64  `json:"buries,omitempty"`
	Kicks    uint64  `json:"kicks,omitempty"`

	Key        string  `json:"key,omitempty"`
	KeySeconds *uint32 `json:"key-seconds,omitempty"`

	Body []byte `json:"-"`
}

// line is a job with its body as it is written.
type line struct {
	Job
	Text   *string `json:"body,omitempty"`
	Base64 *[]byte `json:"body-base64,omitempty"`
}

// AppendLine appends the job's line, with its end.
func (j *Job) AppendLine(b []byte) ([]byte, error) {
	l := line{Job: *j}
	if utf8.Valid(j.Body) {
		text := string(j.Body)
		l.Text = &text
	} else {
		l.Base64 = &j.Body
	}
	out := bytes.NewBuffer(b)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	if err := e.Encode(&l); err != nil {
		return b, fmt.Errorf("job %d: %w", j.ID, err)
	}
	return out.Bytes(), nil
}

// Parse reads one line. The job does not refer to it.
func Parse(text []byte) (Job, error) {
	// The JSON decoder would replace what is not Unicode, and the body would be another one.
	if !utf8.Valid(text) {
		return Job{}, errors.New("not UTF-8: a body that is no text goes into body-base64")
	}
	if loneSurrogate(text) {
		return Job{}, errors.New("half of a surrogate pair: a body that is no text goes into body-base64")
	}
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return Job{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Job{}, errors.New("more than one JSON object in the line")
	}
	switch {
	case l.Text != nil && l.Base64 != nil:
		return Job{}, errors.New("both body and body-base64")
	case l.Text != nil:
		l.Job.Body = []byte(*l.Text)
	case l.Base64 != nil:
		l.Job.Body = *l.Base64
	default:
		return Job{}, errors.New("neither body nor body-base64")
	}
	return l.Job, nil
}

// loneSurrogate reports whether there is a \u escape of a surrogate without its other half.
func loneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch {
		case !surrogate(text[i:], "89ab"):
			if surrogate(text[i:], "cdef") {
				return true
			}
			i++ // what is escaped, which may be a backslash
		case surrogate(text[min(i+6, len(text)):], "cdef"):
			i += 11
		default:
			return true
		}
	}
	return false
}

// surrogate reports whether text begins with \ud, one of these digits, and two more.
func surrogate(text []byte, digits string) bool {
	if len(text) < 6 {
		return false
	}
	b := bytes.ToLower(text[:6])
	return string(b[:3]) == `\ud` && text[1] == 'u' && bytes.IndexByte([]byte(digits), b[3]) >= 0
}
