// Package tlstest issues certificates for tests.
package tlstest
