// Package options reads the command line of trellisd.
//
// Every flag of beanstalkd is there under its letter and with its meaning,
// clustered and attached forms included (-VV, -p11300, -VVFf10), and has a long
// name beside it. Flags are read from left to right and the first mistake ends
// the reading, so -v before a mistake still prints the version and -v behind it
// does not.
//
// The package only reads: it opens nothing, prints nothing and never exits. What
// it has to say to the user stands in Options.Notices or in the error.
package options
