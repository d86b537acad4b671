package producer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/jobfile"
)

// jsonPerByte is how long a byte of a body can be in JSON: \u0000.
const jsonPerByte = 6

// jsonKeys is more than all that an exported line has beside its body.
const jsonKeys = 4096

// Lines is a source that makes a job of every line, without its line feed.
type Lines struct {
	in      *jobfile.Lines
	job     Job
	maxBody uint64
}

// NewLines returns the source of the lines of in. Its jobs are like job but for Body and Line. maxBody is in bytes.
func NewLines(in io.Reader, job Job, maxBody uint64) *Lines {
	return &Lines{jobfile.NewLines(in, int(maxBody)), job, maxBody}
}

// Next implements Source.
func (s *Lines) Next() (Job, error) {
	text, err := s.in.Next()
	if errors.Is(err, jobfile.ErrTooLong) {
		return Job{}, &Refusal{s.in.Number(), TooLarge(s.maxBody)}
	}
	if err != nil {
		return Job{}, err
	}
	job := s.job
	job.Body, job.Line = bytes.Clone(text), s.in.Number()
	if job.Body == nil {
		job.Body = []byte{}
	}
	return job, nil
}

// Waiting implements Source.
func (s *Lines) Waiting() bool { return s.in.Waiting() }

// File is a source of jobs in the format of package jobfile.
type File struct {
	in      *jobfile.Lines
	convert func(*jobfile.Job) (Job, error)
	maxBody uint64
}

// NewFile returns the source of the jobs that convert makes of the lines of in. A line for which it fails is refused.
func NewFile(in io.Reader, maxBody uint64, convert func(*jobfile.Job) (Job, error)) *File {
	return &File{jobfile.NewLines(in, int(maxBody)*jsonPerByte+jsonKeys), convert, maxBody}
}

// Next implements Source. It skips lines that are blank.
func (s *File) Next() (Job, error) {
	for {
		text, err := s.in.Next()
		if errors.Is(err, jobfile.ErrTooLong) {
			return Job{}, &Refusal{s.in.Number(), TooLarge(s.maxBody)}
		}
		if err != nil {
			return Job{}, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		job, err := s.job(text)
		if err != nil {
			return Job{}, &Refusal{s.in.Number(), err}
		}
		job.Line = s.in.Number()
		return job, nil
	}
}

func (s *File) job(text []byte) (Job, error) {
	parsed, err := jobfile.Parse(text)
	if err != nil {
		return Job{}, err
	}
	job, err := s.convert(&parsed)
	if err == nil {
		err = client.CheckTube(job.Tube)
	}
	return job, err
}

// Waiting implements Source.
func (s *File) Waiting() bool { return s.in.WaitingForText() }

// Put returns the job that `trellis put --ndjson` puts for j. What j does not say is as in otherwise.
func Put(j *jobfile.Job, otherwise Job) (Job, error) {
	job := otherwise
	job.Body = j.Body
	if j.Tube != "" {
		job.Tube = j.Tube
	}
	for to, from := range map[*uint32]*uint32{&job.Pri: j.Pri, &job.Delay: j.Delay, &job.TTR: j.TTR} {
		if from != nil {
			*to = *from
		}
	}
	if j.Key != "" {
		tag, err := KeyTag("idp", j.Key)
		if err != nil {
			return job, err
		}
		if j.KeySeconds != nil {
			tag = fmt.Sprintf("%s:%d", tag, *j.KeySeconds)
		}
		job.Tags = append(slices.Clip(job.Tags), tag) // those of otherwise are shared
	} else if j.KeySeconds != nil {
		return job, errors.New("key-seconds without key")
	}
	return job, nil
}

// Restore returns the job that `trellis import` puts for j: buried or delayed if j was, and ready otherwise.
func Restore(j *jobfile.Job, otherwise Job) (Job, error) {
	job, err := Put(j, otherwise)
	switch client.State(j.State) {
	case "":
	case client.Ready, client.Reserved:
		job.Delay = 0
	case client.Delayed:
		if j.TimeLeft != nil {
			job.Delay = *j.TimeLeft
		}
	case client.Buried:
		job.Delay, job.Bury = 0, true
	default:
		return job, fmt.Errorf("state %q is not one of ready, reserved, delayed and buried", j.State)
	}
	return job, err
}

const maxKey = 64

// KeyTag is a tag of put that consists of its kind, such as idp, and a key.
func KeyTag(kind, key string) (string, error) {
	if err := client.CheckTube(key); err != nil || len(key) > maxKey {
		return "", fmt.Errorf("%q cannot be a key, which has 1 to %d letters, digits and -+/;.$_(), "+
			"and does not begin with -", key, maxKey)
	}
	return kind + ":" + key, nil
}
