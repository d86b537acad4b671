//go:build poll_opt

package gnetloop

import "errors"

func init() {
	unsupported = errors.New("gnetloop: the program was built with the tag poll_opt, " +
		"with which gnet's poller cannot be shared")
}
