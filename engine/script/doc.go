// Package script holds the specification of the server in test form: text
// scripts of what clients send and what they must receive, and the driver that
// plays them against any server that can be put behind a [Target]: a real
// beanstalkd, the whole of trellisd over a socket, or the engine alone under a
// fake clock. One corpus drives all three, so that they must agree.
//
// # Scripts
//
// A file of testdata holds cases. Each is played on a fresh server:
//
//	# A comment.
//	== release puts a job back
//	conn 1 > put 10 0 5 5\r\nhello
//	conn 1 < INSERTED 1
//	conn 1 > reserve
//	conn 1 < RESERVED 1 5\r\nhello
//	conn 2 > reserve
//	conn 2 < nothing
//	conn 1 > release 1 10 0
//	conn 1 < RELEASED
//	conn 2 < RESERVED 1 5\r\nhello
//
// What stands before the first case of a file is played at the start of every
// case of that file. The steps are:
//
//	== title            a case begins
//	server -z 10        the server's start options; before any other step
//	client a put,work b/*   clients called a have these rights to these tubes;
//	                    before any other step
//	conn 1 open         opens a connection; any other use of its name does too
//	conn 1 as a         opens a connection of a client that is called a
//	conn 1 > text       sends the text and CR LF
//	conn 1 >> text      sends the text alone
//	conn 1 < text       the next bytes to be received are the text and CR LF
//	| line              continues "<": a line of a YAML reply; see below
//	conn 1 < nothing    no byte arrives
//	conn 1 ? stats-job 1: state ready, pri 10
//	                    sends the command and finds these values, among others,
//	                    in the dictionary that is the reply; quotes are ignored;
//	                    after a "close" it is sent again until they are there
//	conn 1 half-close   the client will send no more, but goes on reading
//	conn 1 close        the client closes
//	conn 1 closed       the server has closed and nothing more was received
//	wait 1.2s           time passes
//	drain on            drain mode (or off), when a connection has been opened
//	restart             the server is killed and started on its log, which "server -b log" gives it;
//	                    clients connect anew
//
// All bytes that arrive must be asked for: bytes left over at the end of a case
// are an error.
//
// # Marks
//
// A mark before a step, or before a continuation line, or before the == of a
// case, limits it to some targets. All else holds for every target.
//
//	[1.12] conn 1 < TIMED_OUT       only for targets tagged "1.12"
//	[!1.12] conn 1 < BAD_FORMAT     only for targets not tagged "1.12"
//	[trellis][exact] wait 0.999s    only for targets with both tags
//
// The tags in use are "1.12" for Debian's beanstalkd, "trellis" for the server of
// this repository however it is driven, "access" for one that can be told of clients with
// less than all rights, "held" for one that has all reservations on record, and "exact" for a target that is driven
// from within: its clock moves only in "wait", so that the last nanosecond before
// a deadline can be told from the first one after it, and it can leave drain mode,
// for which a real server has no signal.
//
// # Text
//
// A text begins one space after its verb and ends with the line; it neither
// begins nor ends with white space. Escapes are \r \n \t \s (a space) \\ \{ and
// \xNN. A byte before {222} is meant 222 times, {20*text} is the text 20 times.
//
// Expected texts may hold patterns. Each matches bytes up to, and not including,
// the byte that follows it in the text:
//
//	{*}         anything but CR and LF, or nothing
//	{3..5}      a decimal number from 3 to 5
//	{~regexp}   what the regular expression matches as a whole
//	{#}         the number of bytes in the continuation lines
//
// Continuation lines form the data of a YAML reply. Each ends with LF, and CR LF
// follows the last one:
//
//	conn 1 > list-tubes
//	conn 1 < OK {#}
//	| ---
//	| - default
//
// is another way to write
//
//	conn 1 < OK 14\r\n---\n- default\n
//
// # Time
//
// The driver never sleeps and never reads a clock; a target does, if it must.
// Scripts that real servers play leave tolerance around every deadline: they
// expect things to have happened 0.2 s late, and not to have happened 0.4 s early.
// Steps marked [exact] need no tolerance.
package script
