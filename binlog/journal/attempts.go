package journal

// UsualAttempts is what a job's attempts are unless they are recorded: those of a job
// that was never kicked are all its releases and time-outs. For a job that was kicked it
// is 0, which is also what counts of the logs of beanstalkd's, and of those that were
// written before attempts were recorded.
func (r *Record) UsualAttempts() uint32 {
	if r.Kicks != 0 {
		return 0
	}
	return r.Releases + r.Timeouts
}

// Optional is how many bytes the full record of r has beside those that every one has,
// its tube, its keys and its body.
func (r *Record) Optional() int {
	if r.Attempts != r.UsualAttempts() {
		return attemptsSize
	}
	return 0
}

const attemptsSize = 4

// Size is the length in bytes of the full record of r.
func (r *Record) Size() int64 { return SizeOf(r.Tube, len(r.Body)+r.Optional(), &r.Keys) }
