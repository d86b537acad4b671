// Package options reads the command line of trellisd.
//
// Every flag of beanstalkd is there under its letter and with its meaning,
// clustered and attached forms included (-VV, -p11300, -VVFf10), and has a long
// name beside it. Flags are read from left to right and the first mistake ends
// the reading, so -v before a mistake still prints the version and -v behind it
// does not.
//
// A new flag is one entry in table.go: how it is read and shown, its default, what -h and
// what the manual say. Its variable in the environment follows from its name. Usage, Manual
// and the manual page trellisd(8) are made from there, the rest of the manual from manual.md.
// Beside the entry, a flag needs a field in Options and lines in the tests of what it takes
// and refuses.
//
// What the command line gives counts before what the environment gives, flag by flag.
// Options.Settings tells what is in force, and who has said so.
//
// The package only reads: it opens nothing, prints nothing and never exits. What
// it has to say to the user stands in Options.Notices or in the error.
package options
