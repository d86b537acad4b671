package options

import _ "embed"

// Usage is the summary of the flags that -h prints.
//
//go:embed usage.txt
var Usage string

// Manual is the whole description that --help prints.
//
//go:embed manual.txt
var Manual string
