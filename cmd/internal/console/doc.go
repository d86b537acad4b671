// Package console is the console for the browser: pages that show what a server does and
// let an operator act, and the same as JSON under /api/v1/. It is part of trellisd --http,
// and of trellis console, which shows other servers, stock beanstalkd too.
//
//	c := console.New(console.Config{Server: "127.0.0.1:11300", Dial: dial, Log: log})
//	go c.Run(ctx)                    // measures once a second
//	http.Serve(l, c)
//
// A [Console] shows one server, and speaks the protocol with it as a client like any
// other: it waits its turn, and rights and limits hold for it. What a server has no command
// for is not shown. What the protocol does not tell comes from [Local], which only the
// server that the console is part of can have. [Several] is a console for more than one.
//
// # Pages
//
// The server renders everything, charts included. Every page is reached by links, that of a
// group by looking for grp:NAME, and every change is made by a form, without a script. The only
// script fetches the page that is shown again every two seconds while its tab is visible, and
// replaces the parts that are marked as live, except those that somebody is using. Lists that
// somebody may be choosing from are not live. A page that could not be shown is asked for
// again; an answer to a form never is.
//
// How long jobs wait is known for the server as a whole only: to count it by tube would cost
// each reserve and each tube. The page of a tube shows how old the jobs are that are ready
// now, which costs nobody who does not look at it: it lists up to 10,000 of them, the first
// that would be taken.
//
// # Safety
//
// A console is read-only unless Config.Write is set, and to a user whom Config.Writes does
// not name; the handler that all changes go through refuses them then, whatever page they come
// from. Nothing changes on GET or HEAD.
// Requests of other sites' pages are refused ([http.CrossOriginProtection]), and so are
// requests under a host name that is not this server's: somebody else could point a name of
// their own here. The content security policy allows this site's own style sheet and
// script and nothing else. What is destroyed is counted and asked for once more on pages;
// the API does as it is told. Every attempt at a change is logged, and the last 200 are
// shown.
//
// A [Gate] keeps people out who share the machine, where nobody has a password.
//
// What comes from jobs and from the server is hostile. It is text in html/template's sense
// everywhere; bodies are cut at 64 KiB and have control characters made visible; a
// download is an attachment without a type. Names that no tube can have are not linked.
//
// # Bounds
//
// A console makes the answers to eight requests at a time, and sends four downloads at a
// time; a slow reader holds up nothing but downloads. It has at most four connections to its
// server, and closes those that were not needed for ten seconds. It keeps the points of
// five minutes and six hours for the server and for 32 tubes, those looked at last; a table of
// at most 100,000 tubes, those with the most jobs, while somebody looks at it; and 200
// actions. A table, and the ages of a tube's ready jobs, are made anew after two seconds or
// after a change, and take at most a twentieth of the time. Bodies of more than 16 MiB are
// not fetched. A gate has 16 sessions: one more ends that which was used least lately. A session
// ends half an hour after its last request, and after 12 hours.
package console
