package privilege

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"syscall"
)

// ErrUnknownUser is what Lookup returns if there is no such user, and not if it
// could not find out.
var ErrUnknownUser = errors.New("no such user")

// User is whom a process can become.
type User struct {
	UID, GID int // GID is the primary group

	name   string // as it was looked up
	groups []int  // with GID
}

// Lookup finds the user of that name or, if there is none, of that number.
func Lookup(name string) (*User, error) {
	entry, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if _, notNumber := strconv.ParseUint(name, 10, 32); notNumber == nil {
			entry, err = user.LookupId(name)
		}
	}
	var unknownID user.UnknownUserIdError
	switch {
	case errors.As(err, &unknown), errors.As(err, &unknownID):
		return nil, fmt.Errorf("%w: %q; see /etc/passwd for those that exist", ErrUnknownUser, name)
	case err != nil:
		return nil, fmt.Errorf("user lookup failed: %q: %w", name, err)
	}

	groups, err := entry.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("user lookup failed: groups of %q: %w", name, err)
	}
	var ids []int
	for _, s := range append([]string{entry.Uid, entry.Gid}, groups...) {
		id, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("user lookup failed: ids of %q: %w", name, err)
		}
		ids = append(ids, id)
	}
	u := &User{UID: ids[0], GID: ids[1], name: name, groups: ids[1:2]}
	for _, gid := range ids[2:] {
		if gid != u.GID {
			u.groups = append(u.groups, gid)
		}
	}
	if limit := maxGroups(); len(u.groups) > limit {
		u.groups = u.groups[:limit]
	}
	return u, nil
}

// Become makes the whole process, all its threads, run as the user: with its
// primary group and its supplementary groups, and without a way back. A process
// that runs as that user already, and not as root, is left as it is.
//
// If it fails, the process may have changed in part and should end.
func (u *User) Become() error {
	if u.UID != 0 && u.current() {
		return nil
	}

	// The user comes last: after it there is no right to change groups any more.
	if err := syscall.Setgroups(u.groups); err != nil {
		return fmt.Errorf("setting the groups of user %q: %w%s", u.name, err, advice(err))
	}
	if err := syscall.Setgid(u.GID); err != nil {
		return fmt.Errorf("setting the group of user %q: %w%s", u.name, err, advice(err))
	}
	if err := syscall.Setuid(u.UID); err != nil {
		return fmt.Errorf("becoming user %q: %w%s", u.name, err, advice(err))
	}
	return u.check()
}

func advice(err error) string {
	if errors.Is(err, syscall.EPERM) {
		return "; start as root, or leave -u out"
	}
	return ""
}

// maxGroups is how many supplementary groups the system lets a process have.
func maxGroups() int {
	switch runtime.GOOS {
	case "linux":
		return 65536
	case "freebsd":
		return 1023
	default:
		return 16
	}
}

func (u *User) current() bool {
	return os.Getuid() == u.UID && os.Geteuid() == u.UID &&
		os.Getgid() == u.GID && os.Getegid() == u.GID
}

// check makes sure that the change was whole and for good.
func (u *User) check() error {
	if !u.current() {
		return fmt.Errorf("becoming user %q: still uid %d/%d, gid %d/%d",
			u.name, os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid())
	}
	groups, err := os.Getgroups()
	if err != nil {
		return fmt.Errorf("becoming user %q: reading back the groups: %w", u.name, err)
	}
	for _, gid := range groups {
		if !slices.Contains(u.groups, gid) {
			return fmt.Errorf("becoming user %q: still in group %d", u.name, gid)
		}
	}
	if u.UID != 0 && syscall.Setuid(0) == nil {
		return fmt.Errorf("becoming user %q: could become root again", u.name)
	}
	return nil
}
