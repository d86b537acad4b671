// Package clock has what a loop wants of time beside the clock by which it has its deadlines: an [Alarm], which wakes
// it, and [Boot], which goes on while the machine sleeps.
package clock
