// Manpage writes the manual page of trellisd to standard output. It is made from the Markdown behind
// trellisd --help, so that the two cannot differ.
//
//	go run ./cmd/trellisd/internal/manpage 0.1.0 2024-02-29 >trellisd.8
package main
