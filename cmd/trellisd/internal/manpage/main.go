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
