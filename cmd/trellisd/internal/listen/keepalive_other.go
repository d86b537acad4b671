//go:build !darwin

package listen

import "golang.org/x/sys/unix"

const tcpKeepIdle = unix.TCP_KEEPIDLE
