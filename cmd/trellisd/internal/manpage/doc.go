// Manpage writes the manual page of trellisd to standard output. It is made from
// the text that trellisd --help prints, so that the two cannot differ.
//
//	go run ./cmd/trellisd/internal/manpage 0.1.0 2024-02-29 >trellisd.8
package main
