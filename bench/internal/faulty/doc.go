// Package faulty is a server for the tests of load and compare: correct, simple and slow, with a goroutine for each
// connection and one lock, until it is told to break its promises in one of the ways of Faults.
package faulty
