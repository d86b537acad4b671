// Package watch finds the new jobs of a tube by listing it again and again. It reserves nothing, so
// that workers do not notice.
//
// A job is new if its id is greater than all that were in the tube at the start: ids ascend. A job that comes and goes
// between two looks is not seen, as no listing has it.
//
// # What is asked
//
// The wire has no order by age: a new job may stand anywhere in a queue. A look that finds a queue
// longer than a page reads its first page, what has come behind its former end, where most
// new jobs stand, and one page of a walk through the rest. So a look costs a few pages of a thousand
// jobs for each state, and a job in the middle of a long queue is found when the walk gets there.
//
// # Memory
//
// The ids of new jobs are remembered, so that none is told twice: [maxSeen] of them. After that the
// older half counts as old: a job of that age that was not found yet is not told any more.
package watch
