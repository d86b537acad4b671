package options

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trellis/cmd/trellisd/internal/listen"
)

// variablePrefix begins the names of the variables by which the environment gives options.
const variablePrefix = "TRELLISD_"

// variable is the name in the environment of a flag.
func (f *flag) variable() string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))
}

// foreign matches variables that are somebody else's: that of the systemd unit, which puts it on the command line, and
// those by which Kubernetes tells of a service with the name trellisd, or one that begins so.
var foreign = regexp.MustCompile(
	`^TRELLISD_(OPTS=|(\w+_)?(SERVICE_HOST=|SERVICE_PORT(_\w+)?=|PORT=\w+://|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=))`)

// readEnvironment sets what variables, each NAME=VALUE, say of flags that are not onLine, the command line.
func (c *commandLine) readEnvironment(variables []string, flags []flag, onLine map[string]bool) error {
	values := make(map[string]string)
	for _, v := range variables {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, variablePrefix) && !foreign.MatchString(v) {
			values[name] = value
		}
	}
	var names []string
	for _, f := range flags {
		name := f.variable()
		value, there := values[name]
		if f.show == nil {
			continue
		}
		names = append(names, name)
		delete(values, name)
		if !there || onLine[f.name] {
			continue
		}
		c.variables[f.name] = name
		if err := c.setByVariable(&f, value); err != nil {
			return usagef("%s: %v", name, usageError(err))
		}
	}
	for _, unknown := range slices.Sorted(maps.Keys(values)) {
		capitals := strings.ToUpper(unknown)
		nearest := slices.MinFunc(names, func(a, b string) int { return distance(a, capitals) - distance(b, capitals) })
		return usagef("unknown variable in the environment: %s; did you mean %s?", unknown, nearest)
	}
	return nil
}

func (c *commandLine) setByVariable(f *flag, value string) error {
	values := []string{value}
	switch {
	case f.value == "":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("invalid value: %s; give 1 or 0", value)
		}
		if !on {
			return nil
		}
		values[0] = given
	case f.several:
		var err error
		if values, err = splitList(value); err != nil {
			return fmt.Errorf("invalid list: %s; put commas between values, and those with commas in double quotes", value)
		}
	}
	for _, v := range values {
		if err := c.Set(f.name, v); err != nil {
			return err
		}
	}
	return nil
}

// splitList splits at commas outside of double quotes, but not before the word that marks an address for proxies. A
// list has one line: what stood behind it would be lost.
func splitList(list string) (values []string, err error) {
	if strings.ContainsAny(list, "\r\n") {
		return nil, errors.New("more than a line")
	}
	words, err := csv.NewReader(strings.NewReader(list)).Read()
	for _, word := range words {
		if n := len(values); n > 0 && ","+word == listen.ProxySuffix {
			values[n-1] += "," + word
			continue
		}
		values = append(values, word)
	}
	return values, err
}

// distance is the number of letters to insert, to leave out or to replace in a to get b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
