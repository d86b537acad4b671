//go:build poll_opt

package reactor

import "errors"

// With the build tag poll_opt gnet's poller holds pointers of gnet's own with
// the descriptors, which cannot be kept when a registration is changed.

func (p pauser) pause(int) error  { return errors.ErrUnsupported }
func (p pauser) resume(int) error { return errors.ErrUnsupported }
