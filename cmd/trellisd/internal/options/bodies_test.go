package options

import (
	"errors"
	"strings"
	"testing"
)

func TestBodyMemoryNeedsABinlogAndIsLargeEnough(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"--body-memory=64MB", "--body-memory needs -b DIR: what is not in memory is on the disk"},
		{"-bD|--node=n1=127.0.0.1:1|--body-memory=64MB|-z13M", "--body-memory has to be five times -z at least"},
		{"-bD|--body-memory=64MB|-z13M", "--body-memory has to be five times -z at least"},
		{"-bD|--body-memory=63999999", "invalid value for --body-memory: 63999999; give a number of at least 64000000, in bytes, " +
			"or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
	} {
		_, err := Parse(strings.Split(x.args, "|"), nil)
		if usage := (*UsageError)(nil); !errors.As(err, &usage) || err.Error() != x.want {
			t.Errorf("%s:\n got %v\nwant %s", x.args, err, x.want)
		}
	}
	for _, args := range []string{"-bD|--body-memory=64MB", "-bD|--node=n1=127.0.0.1:1|--body-memory=64MB"} {
		if o, err := Parse(strings.Split(args, "|"), nil); err != nil || o.BodyMemory != 64_000_000 {
			t.Errorf("%s: %+v, %v", args, o, err)
		}
	}
}
