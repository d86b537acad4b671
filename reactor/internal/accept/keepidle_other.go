//go:build !darwin

package accept

import "golang.org/x/sys/unix"

const keepIdle = unix.TCP_KEEPIDLE
