package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"trellis/cmd/trellisd/internal/options"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "use: manpage VERSION DATE")
		os.Exit(2)
	}
	os.Stdout.WriteString(page(os.Args[1], os.Args[2]))
}

func page(version, date string) string {
	title := fmt.Sprintf("%% %q %q %q %q %q\n", "TRELLISD", "8", date, "trellisd "+version, "System administration")
	roff := string(md2man.Render([]byte(title + options.Markdown())))
	// Nothing stretched, no hyphens, and minus signs as they are typed: flags are to be found and copied.
	roff = strings.Replace(roff, "\n.SH NAME\n", "\n.nh\n.nr HY 0\n.ad l\n.SH NAME\n", 1)
	return strings.ReplaceAll(strings.ReplaceAll(roff, `\-`, "-"), "-", `\-`)
}
