// Trellisd is a work-queue server that speaks beanstalkd's protocol.
//
// This package puts the server together: it reads the command line, opens the
// sockets, gives up root's rights, replays the log into the engine, has the reactor
// serve clients, and answers signals. It starts in beanstalkd's order: the command
// line, the sockets, the user, the log, the service. So a port in use is reported
// before an unknown user, and an unprivileged user can serve a privileged port. Files that
// the command line names are read as that user, before the log: one that the user could not
// read again later is reported at the start.
//
// A member of a cluster opens the socket for its peers, becomes the user, and then opens the
// clients' sockets only to see that it can. It serves clients while it leads; package
// internal/cluster makes an engine and a reactor for each office.
//
// Run trellisd --help for the command line, the signals and the exit codes.
package main
