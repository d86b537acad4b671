package listen

import "golang.org/x/sys/unix"

const tcpKeepIdle = unix.TCP_KEEPALIVE
