//go:build poll_opt

package gnetpoll

import "errors"

// With the build tag poll_opt gnet's poller holds pointers of gnet's own with
// the descriptors, which cannot be kept when a registration is changed.

func (p Poller) Pause(int) error  { return errors.ErrUnsupported }
func (p Poller) Resume(int) error { return errors.ErrUnsupported }
