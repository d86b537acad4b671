// Package operate is what the console, the tool and `trellis top` have in common: what is told of a tube and in which
// columns, how fast jobs come and go, what is done to jobs, and how numbers, sizes and times are written for people.
//
// # Tubes
//
// A [Tube] is made of the statistics that a server tells ([TubeOf]), or by a server of its own tubes. [Columns] is the
// one list of what is told of a tube: every table, the console's API and its description are made from it. A [Meter]
// makes [Rates] of counters that are looked at again and again.
//
// # Jobs
//
// [Kick], [Bury], [Delete], [Move] and [Copy] are for jobs with given ids, or for the first ones of a tube in a state
// ([Jobs]). They work with a stock beanstalkd as far as its commands reach; otherwise the error is a
// [client.LacksError]. The commands for one job are sent together, so that a connection that is lost in between does
// not leave a job that was reserved to be buried, and would come back as a ready one.
//
// A job that has gone, or that somebody else has reserved, is no error: its id is in [Outcome.Missing].
package operate
