//go:build !darwin

package reactor

import "golang.org/x/sys/unix"

const keepIdle = unix.TCP_KEEPIDLE
