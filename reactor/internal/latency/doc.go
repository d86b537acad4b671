// Package latency counts how long commands took. A loop notes the commands whose replies leave together in a [Batch],
// and gives it to its [Recorder] when they have left.
package latency
