// Package numbers keeps the numbers of loops, and which sessions on record have ids of them.
//
// A loop of a member's process has a number, which no other loop ever has. Ids of its sessions begin with it. While a
// loop has a session, or something is under way for it, the session is present. What it holds when no loop has it, it
// holds as an absent one, until a session of its id goes on with that, or its number is dismissed or gone.
//
// Numbers are put on record before they count. The package knows nothing of what sessions hold.
package numbers
