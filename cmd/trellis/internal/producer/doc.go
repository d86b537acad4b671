// Package producer puts many jobs into a server: it sends them without waiting for each reply, and
// tells which ones were refused.
//
// A producer takes jobs from a [Source] into batches, so that its memory is bounded by [batchBytes]
// and one job, however many come. A batch ends early when the source would have to wait for the next
// job: a job never waits in a batch for others.
//
// # What is refused
//
// A line that is no job, and a job that is too large, leave the others alone: the producer goes on.
// Every other refusal, such as DRAINING or OUT_OF_MEMORY, would meet the next jobs too, and ends it.
// Jobs that were under way then may have been put or refused as well, and each refused one is told.
// When the connection is lost, the fate of the jobs under way is not known; [Summary.Unknown] counts
// them.
//
// # Buried jobs
//
// The protocol puts no buried jobs. One that is to be buried is put with a delay of [buryDelay], so
// that no worker takes it, then reserved by its id and buried. If the producer is killed in between,
// the job becomes ready after the delay.
//
// A server that has no memory to queue a job may answer BURIED to its put. The job is there, and no worker gets it
// before it is kicked; [Summary.Buried] counts such jobs.
package producer
