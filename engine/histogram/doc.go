// Package histogram counts durations in the exponential buckets of Prometheus's
// native histograms, at a cost of a few nanoseconds each and without allocating.
//
// Buckets grow by the fourth root of two (schema 2), so a quantile read off them
// is at most 19 % too large. Bucket number i holds what is longer than
// 2^((i-1)/4) seconds and not longer than 2^(i/4). They reach from 2^-24 seconds,
// 60 ns, to 2^20, twelve days; what is beyond either end counts in the last one
// there.
package histogram
