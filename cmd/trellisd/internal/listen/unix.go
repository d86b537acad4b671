package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trellis/reactor"
)

// maxUnixPath is the longest path of a socket, in bytes: one is for the final NUL.
const maxUnixPath = len(unix.RawSockaddrUnix{}.Path) - 1

// probeTimeout bounds the wait for a server that may be listening on a path. A
// live one lets us in at once, by its backlog, even when it is stopped.
const probeTimeout = time.Second

// unixListener is a UNIX socket that removes its file when it is closed.
type unixListener struct {
	*net.UnixListener
	path string // absolute: the process may change its directory
	file os.FileInfo

	once sync.Once
	err  error // of the first Close
}

func openUnix(ctx context.Context, path string, mode fs.FileMode, log *slog.Logger) (net.Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	// Go takes a leading @ for the abstract name space of Linux; to beanstalkd it
	// is a letter.
	name := path
	if name[0] == '@' {
		name = "./" + name
	}
	if err := makeWay(name, log); err != nil {
		return nil, err
	}
	l, err := listenUnix(ctx, name, mode)
	if err != nil {
		return nil, bare(err)
	}
	l.SetUnlinkOnClose(false) // it would remove whatever is at the path by then
	ul := &unixListener{UnixListener: l}
	if ul.path, err = filepath.Abs(name); err == nil {
		ul.file, err = os.Lstat(ul.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("its socket file is gone: %w", err), l.Close())
	}
	if mode == 0 {
		return ul, nil
	}
	if err := os.Chmod(ul.path, mode); err != nil { // for what the umask has taken away
		return nil, errors.Join(fmt.Errorf("setting its permissions: %w", cause(err)), ul.Close())
	}
	return ul, nil
}

func checkPath(path string) error {
	if len(path) > maxUnixPath {
		return fmt.Errorf("the path is too long (%d characters, where maximum allowed is %d); choose a shorter one",
			len(path), maxUnixPath)
	}
	return nil
}

// listenUnix opens a socket whose file never has more permissions than mode, unless mode is 0.
func listenUnix(ctx context.Context, name string, mode fs.FileMode) (*net.UnixListener, error) {
	var lc net.ListenConfig
	if mode != 0 {
		lc.Control = func(_, _ string, c syscall.RawConn) error {
			// On Linux the file gets what the socket has. Elsewhere this fails, and the
			// file has what the umask makes of it for a moment.
			return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), uint32(mode)) })
		}
	}
	l, err := lc.Listen(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// makeWay removes a socket file on which nobody listens. It fails if anything
// else is at the path.
func makeWay(path string, log *slog.Logger) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cause(err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("another file already exists in the given path; remove it or choose another path")
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		err = conn.Close()
	}
	switch {
	case err == nil:
		return errors.New("another server is listening there; stop it or choose another path")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether another server is listening there (%w); remove the file if there is none",
			bare(err))
	}
	log.Warn("removing existing local socket to replace it", "path", path)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the socket that was left behind: %w", cause(err))
	}
	return nil
}

// Chown gives the files of the UNIX sockets that Open has made to a user and a
// group. It leaves TCP and inherited sockets alone, and paths at which there is
// another file by now.
func Chown(ls []net.Listener, uid, gid int) error {
	for _, l := range ls {
		if p, ok := l.(reactor.Proxied); ok {
			l = p.Listener
		}
		ul, ok := l.(*unixListener)
		if !ok {
			continue
		}
		own, err := ul.inPlace()
		if own {
			err = os.Lchown(ul.path, uid, gid)
		}
		if err != nil {
			return fmt.Errorf("giving unix:%s to user %d: %w", ul.path, uid, cause(err))
		}
	}
	return nil
}

// inPlace tells if the file at the path is the socket's. An open socket keeps its
// inode from being used again, so what is the same inode is the same file.
func (l *unixListener) inPlace() (bool, error) {
	now, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(now, l.file), err
}

// Close removes the socket's file, unless another file has taken its place, and
// stops listening. What matters to the caller is that it stopped: the error may
// also be that the directory no longer lets this process remove the file.
func (l *unixListener) Close() error {
	l.once.Do(func() {
		own, err := l.inPlace()
		if own {
			err = os.Remove(l.path)
		}
		l.err = errors.Join(err, l.UnixListener.Close())
	})
	return l.err
}

// cause takes the operation and the path from an error of os.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
