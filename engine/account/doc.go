// Package account counts what teams that share a server hold, and bounds it. It knows no tube, no job and no
// client: whoever has them counts them here.
//
//	all := new(account.Accounts)        // of the server; they outlive engines
//	all.Set([]account.Tubes{{Account: account.New("acme", limits), Tubes: []string{"acme*"}}})
//	book.Open(all, recount)             // of an engine
//	book.Of("acme-mail").Admit(bytes)   // before a put
//
// A tube is that of the [Account] with the longest pattern, and counts there whoever uses it. An engine counts in its
// [Book], in two ways: in total, by a [Tally] for each account, with atomic additions, which limits look at; and by a
// [Holding] for each tube, under the lock of the tube's shard, so that a tube which goes over to another account when
// accounts change takes its share along in one step, whatever it holds. The unique keys of a tube's name may outlive
// the tube, and have a Holding of their own. How many commands the clients of an account give is bounded by a [Rate],
// which whoever executes commands asks.
//
// Limits look at the total: several loops that add at the same time may all be refused, but a limit holds. What is over
// a limit that was lowered stays, and nothing is added. The lock of Accounts is held while the tubes go over to other
// accounts, so it is taken before that of a shard.
package account
