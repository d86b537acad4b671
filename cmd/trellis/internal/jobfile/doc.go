// Package jobfile is the format in which jobs leave a server and come back: NDJSON, which is one JSON object a line.
// `trellis export` writes it; `trellis import` and `trellis put --ndjson` read it.
//
//	{"id":7,"tube":"mail","state":"delayed","pri":10,"age":5,"delay":30,"ttr":60,"time-left":25,"kicks":1,"body":"hello"}
//
// The keys are those of stats-job. The body stands in "body" if it is UTF-8 text, and in "body-base64"
// (RFC 4648, with padding) otherwise; one of them must be there. Counters that are 0 are left out.
// Nothing but the body has to be given to put a job: what is missing comes from the command that
// reads. "key" (with "key-seconds") is only for put, and makes a job unique in its tube where the
// server can do that; servers do not tell keys, so export does not write them.
//
// Unknown keys are errors, since a misspelt "pri" would put jobs with another priority than was meant.
//
// Limits: a line may be as long as the reader is told, and a longer one is skipped without being held in memory.
package jobfile
