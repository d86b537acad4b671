package client

import (
	"fmt"
	"strings"
)

const maxTubeName = 200

// CheckTube tells what is wrong with a name of a tube. Servers refuse such names, or take
// a part of them for something else.
func CheckTube(name string) error {
	valid := func(c rune) bool {
		return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("-+/;.$_()", c)
	}
	switch {
	case name == "":
		return fmt.Errorf("a tube needs a name")
	case len(name) > maxTubeName:
		return fmt.Errorf("the name of a tube has at most %d bytes, this one %d", maxTubeName, len(name))
	case name[0] == '-', strings.ContainsFunc(name, func(c rune) bool { return !valid(c) }):
		return fmt.Errorf("%q cannot be the name of a tube, which has letters, digits and -+/;.$_(), and does not begin with -", name)
	}
	return nil
}
