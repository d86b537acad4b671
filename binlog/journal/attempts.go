package journal

// UsualAttempts is how many attempts a record without that field stands for: all releases
// and time-outs of a job that was never kicked, 0 for one that was. Jobs from beanstalkd's
// logs, and from logs before attempts were recorded, have as many.
func (r *Record) UsualAttempts() uint32 {
	if r.Kicks != 0 {
		return 0
	}
	return r.Releases + r.Timeouts
}

// Optional is how many bytes optional fields other than keys take in the full record of r:
// attempts, unless they are the usual ones.
func (r *Record) Optional() int {
	if r.Attempts != r.UsualAttempts() {
		return attemptsSize
	}
	return 0
}

const attemptsSize = 4

// Size is the length in bytes of the full record of r.
func (r *Record) Size() int64 { return SizeOf(r.Tube, len(r.Body)+r.Optional(), &r.Keys) }
