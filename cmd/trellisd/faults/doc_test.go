// Package faults checks servers by what their clients see while members are killed, stopped, cut off and
// run out of space. Clients of a Workload use the servers, a Recorder writes down what was asked and
// answered, and Check finds out whether a queue that loses nothing can have answered so. These parts are
// in the files history_*, speak the clients' protocol only, and know nothing of how servers are started
// and killed.
//
// # Use
//
//	w := &Workload{Recorder: NewRecorder(), ...}
//	go w.Run(ctx)
//	... kill, pause, cut off; w.Recorder.Await(ctx, w.Recorder.Answered()+1000); heal ...
//	cancel()
//	err := w.Audit(ctx)
//	err = Check(w.Recorder.History())
//
// A Crew is clients of stock libraries that must not notice what happens to members that they are not
// connected with. What it checks can be told of each reply soon, so that its histories may be long.
//
// # The model
//
// Check is linearizability, for each job on its own:
// all commands that name it, all that found no job of its tube, and those without a reply
// that may have been about it. An order of them is looked for just in time, from reply to reply, so that commands
// without a reply, of which there may be many, do not make it long: see search. Where there are too many courses,
// github.com/anishathalye/porcupine decides, with which tests compare the results. A job is unborn, ready, reserved by a session, delayed,
// buried or gone. What one connection brings is executed in its order. Its priority, its delay and how often it was released, buried and kicked
// must be those of the commands before; body, tube and time to run never change.
//
// Jobs that share a limited key are checked together: one of them is reserved only while
// fewer of them in its tube are reserved than its put has said, and nothing else keeps a
// ready one back. So a second job of a key that is handed out is noticed, and so is a key
// that keeps jobs back although nobody holds one.
//
// Four things are open, and the search tries what they may have been:
//
//   - A command without a reply was executed at any time after it was sent, or not at all.
//   - A session that has ended has done so at any time after its last command that had a
//     reply was sent: its server may have been killed, or have been deposed, long before the
//     client noticed. Its reservations end then, and that is how a change of leader frees
//     them. A session that goes on to have replies has not ended, so that within one term
//     two sessions never hold the same job.
//   - A put without a reply is known by its body once somebody sees its job.
//   - A member may have lost its leader for a moment: then a job that lingers, whose worker is a client of that member,
//     may be another's.
//
// Jobs of a group, and those that wait for it, are checked together, too: who waits is not handed out while a member
// is there, and is ready soon when none is.
//
// A time to run that is short ends at some time behind the command that began it: from then on its job
// may be ready, and until then nobody else has it. A job with an expiry may be gone from then on. All other times to
// run and all delays are longer than any test.
//
// Bounds of a tube are checked by themselves: so many of its jobs are certainly reserved at a time, and two of them
// begin so far apart at one server. What such a tube keeps back is looked at in the end only.
//
// Commands that are sent in the end, when nobody else sends any, see that all that was due has happened.
//
// Commands on jobs that are of no family are not compared: that a job of higher priority
// comes first, or that a tube is empty as a whole, is not checked here.
package faults
