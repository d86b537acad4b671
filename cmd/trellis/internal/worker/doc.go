// Package worker runs a command for every job of some tubes: it reserves the job, starts the command with the job's
// body on standard input, and deletes, releases or buries the job when the command has ended.
//
// # Connections
//
// Every slot has a connection of its own, which holds at most one job. So a slot that waits for a job holds none, the
// server has no reason to answer DEADLINE_SOON, and what happens to one connection concerns one job.
//
// While a command runs, its job is touched at each half of its time to run. The connection is read
// from in the meantime: its end is noticed at once, and not only by the next touch.
//
// # What happens to a job
//
// The job is deleted when its command exits with status 0. Otherwise it is released with a delay that
// doubles with every failed attempt, and buried when [Config.Attempts] have failed. Releases, timeouts
// and burials count as failed attempts, on whichever worker they happened; each kick gives as many
// attempts again.
//
// A job may stop being this worker's while its command runs: the connection is lost, with a server
// that restarts too, or touch is answered NOT_FOUND, because the job was deleted or its time to run
// has passed. The server may have given it to somebody else by then. The command is stopped, and its
// exit status decides nothing.
//
// When the worker is stopped, commands may go on for [Config.Grace]. Those that still run are stopped. Their jobs are
// touched until they have ended; then they are moved to their own tubes, by which they are ready again without an
// attempt, and the connections are closed. A server that does not move jobs makes them ready then.
//
// A job can therefore run more than once, as always with this protocol, but two runs overlap only until the end of
// the lost connection is noticed and the command is stopped.
//
// # Processes
//
// Every command leads a process group. Stopping it means SIGTERM to the group, and SIGKILL after
// [killAfter]. A process that survives its command's exit on its own is left alone.
//
// A worker that is killed cannot stop its commands, and the server gives their jobs to others at once. A [Minder], a
// second process, kills their groups then. A worker whose minder has been killed ends in order: somebody may start it
// again. Of a command whose group could not be told to the minder before the worker was killed, the system kills the
// first process ([syscall.SysProcAttr.Pdeathsig]), where it can do that.
package worker
