package vfs

import (
	"fmt"
	"strconv"
	"strings"
)

// Series names the files of a log: each has the series' prefix and a number of ten
// decimal digits, so that names sort as numbers do.
type Series string

const seriesDigits = 10

// Name is the name of the file with that number.
func (s Series) Name(number uint32) string {
	return fmt.Sprintf("%s%0*d", string(s), seriesDigits, number)
}

// Number is the number in a file's name, or 0 if the file is not of the series.
func (s Series) Number(name string) uint32 {
	digits, ok := strings.CutPrefix(name, string(s))
	if !ok || len(digits) != seriesDigits {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
