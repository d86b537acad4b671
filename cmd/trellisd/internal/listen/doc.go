// Package listen opens the sockets that trellisd serves: TCP on IPv4 and IPv6,
// UNIX sockets, and sockets that systemd opened and passed on.
//
// The rules are beanstalkd's where they are sound: plain TCP with address reuse,
// keep-alive and no delay, which the server sets; of a host with several
// addresses the first that this machine has; a UNIX socket's mode follows the
// umask, unless it is given; anything that is wrong with the activation's environment is
// an error.
// They differ where they are not: a UNIX path on which a server answers is left
// alone, all inherited sockets are served and not the first only, and a UNIX
// socket's file is removed when the socket is closed, if it is still the same.
//
// Sockets for clients that come by proxies are marked by [ProxySuffix], or by systemd's name
// for them.
//
// Replacing a stale socket file is not atomic: of two servers that start on the
// same path in the same instant, the later one may take the path from the earlier.
package listen
