// Package series keeps what was measured lately: five minutes by the second, and six hours
// by the minute, in memory that does not grow.
//
// A [Ring] has one [Point] for each second and each minute. Seconds in which nothing was
// measured are gaps: NaN in every number. A minute is the mean of its seconds that are
// known, so that gauges and rates are both right.
//
// A ring takes 32 bytes times 660. Its owner guards it against several goroutines.
package series
