package listen

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// open1 opens one address and closes it at the end of the test.
func open1(t *testing.T, addr string) (l net.Listener, log string, err error) {
	t.Helper()
	var buf bytes.Buffer
	ls, err := Open(context.Background(), []string{addr}, "0", "-p", 0, slog.New(slog.NewTextHandler(&buf, nil)))
	if err != nil {
		return nil, buf.String(), err
	}
	t.Cleanup(func() { ls[0].Close() })
	return ls[0], buf.String(), nil
}

// shortDir returns a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestIPv4AddressesTakeNoIPv6(t *testing.T) {
	for _, addr := range []string{"0.0.0.0", "::ffff:0.0.0.0", "127.0.0.1"} {
		l, _, err := open1(t, addr)
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", net.JoinHostPort("::1", port)); err == nil {
			conn.Close()
			t.Errorf("%s is reached by IPv6", addr)
		}
	}
}

func TestAFailureClosesWhatWasOpenedBefore(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	_, err := Open(context.Background(), []string{"unix:" + path, "192.0.2.1"}, "0", "-p", 0, slog.New(slog.DiscardHandler))
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the first address is still open")
	}
}

func TestTheLongestUnixPathWorksAndALongerOneIsRefused(t *testing.T) {
	dir := shortDir(t)
	longest := dir + "/" + strings.Repeat("x", maxUnixPath-len(dir)-1)
	if _, _, err := open1(t, "unix:"+longest); err != nil {
		t.Error(err)
	}
	if _, _, err := open1(t, "unix:"+longest+"x"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("one more: %v", err)
	}
}

func TestAStaleSocketIsReplacedAndALiveOneIsNot(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if _, _, err := open1(t, "unix:"+path); err == nil || !strings.Contains(err.Error(), "another server is listening") {
		t.Errorf("on a live socket: %v", err)
	}
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	_, log, err := open1(t, "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log, "removing existing local socket to replace it") {
		t.Errorf("logged %q", log)
	}
}

func TestClosingTwiceIsHarmless(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, _, err := open1(t, "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket's file is still there")
	}
}

func TestASocketNeverHasMorePermissionsThanItsMode(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the umask counts for a moment")
	}
	path := filepath.Join(shortDir(t), "s")
	defer syscall.Umask(syscall.Umask(0))
	l, err := listenUnix(t.Context(), path, 0o600) // before anything else is done to the file
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
