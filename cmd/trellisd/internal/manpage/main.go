// Manpage writes the manual page of trellisd to standard output. It is made from
// the text that trellisd --help prints, so that the two cannot differ.
//
//	go run ./cmd/trellisd/internal/manpage 0.1.0 2024-02-29 >trellisd.8
package main

import (
	"fmt"
	"os"

	"trellis/cmd/trellisd/internal/options"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "use: manpage VERSION DATE")
		os.Exit(2)
	}
	os.Stdout.WriteString(page(options.Manual, os.Args[1], os.Args[2]))
}
