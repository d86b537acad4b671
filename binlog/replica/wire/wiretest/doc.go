// Package wiretest is for tests of nodes that talk through package wire: addresses that stay
// free, and certificates that are good or bad.
package wiretest
