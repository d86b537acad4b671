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

// Reasons for which Become fails before it has changed anything.
var (
	ErrUnknownUser = errors.New("no such user")
	ErrLookup      = errors.New("user lookup failed")
)

// Become makes the whole process, all its threads, run as the user of that name
// or, if there is none, of that number: with its primary group and its
// supplementary groups, and without a way back. A process that runs as that user
// already, and not as root, is left as it is.
//
// If it fails with another error than ErrUnknownUser and ErrLookup, the process
// may have changed in part and should end.
func Become(name string) error {
	id, err := lookup(name)
	if err != nil {
		return err
	}
	if id.uid != 0 && id.current() {
		return nil
	}

	// The user comes last: after it there is no right to change groups any more.
	if err := syscall.Setgroups(id.groups); err != nil {
		return fmt.Errorf("setting the groups of user %q: %w%s", name, err, advice(err))
	}
	if err := syscall.Setgid(id.gid); err != nil {
		return fmt.Errorf("setting the group of user %q: %w%s", name, err, advice(err))
	}
	if err := syscall.Setuid(id.uid); err != nil {
		return fmt.Errorf("becoming user %q: %w%s", name, err, advice(err))
	}
	return id.check(name)
}

func advice(err error) string {
	if errors.Is(err, syscall.EPERM) {
		return "; start as root, or leave -u out"
	}
	return ""
}

// identity is what a process is to the system.
type identity struct {
	uid, gid int
	groups   []int // with gid
}

func lookup(name string) (identity, error) {
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if _, notNumber := strconv.ParseUint(name, 10, 32); notNumber == nil {
			u, err = user.LookupId(name)
		}
	}
	var unknownID user.UnknownUserIdError
	switch {
	case errors.As(err, &unknown), errors.As(err, &unknownID):
		return identity{}, fmt.Errorf("%w: %q; see /etc/passwd for those that exist", ErrUnknownUser, name)
	case err != nil:
		return identity{}, fmt.Errorf("%w: %q: %w", ErrLookup, name, err)
	}

	var id identity
	if id.uid, err = strconv.Atoi(u.Uid); err != nil {
		return identity{}, fmt.Errorf("%w: user id of %q: %w", ErrLookup, name, err)
	}
	if id.gid, err = strconv.Atoi(u.Gid); err != nil {
		return identity{}, fmt.Errorf("%w: group id of %q: %w", ErrLookup, name, err)
	}
	gids, err := u.GroupIds()
	if err != nil {
		return identity{}, fmt.Errorf("%w: groups of %q: %w", ErrLookup, name, err)
	}
	id.groups = []int{id.gid}
	for _, s := range gids {
		gid, err := strconv.Atoi(s)
		if err != nil {
			return identity{}, fmt.Errorf("%w: groups of %q: %w", ErrLookup, name, err)
		}
		if gid != id.gid {
			id.groups = append(id.groups, gid)
		}
	}
	if limit := maxGroups(); len(id.groups) > limit {
		id.groups = id.groups[:limit]
	}
	return id, nil
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

func (id identity) current() bool {
	return os.Getuid() == id.uid && os.Geteuid() == id.uid &&
		os.Getgid() == id.gid && os.Getegid() == id.gid
}

// check makes sure that the change was whole and for good.
func (id identity) check(name string) error {
	if !id.current() {
		return fmt.Errorf("becoming user %q: still uid %d/%d, gid %d/%d", name, os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid())
	}
	groups, err := os.Getgroups()
	if err != nil {
		return fmt.Errorf("becoming user %q: reading back the groups: %w", name, err)
	}
	for _, gid := range groups {
		if !slices.Contains(id.groups, gid) {
			return fmt.Errorf("becoming user %q: still in group %d", name, gid)
		}
	}
	if id.uid != 0 && syscall.Setuid(0) == nil {
		return fmt.Errorf("becoming user %q: could become root again", name)
	}
	return nil
}
