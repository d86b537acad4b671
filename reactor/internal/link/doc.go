// Package link carries trunks over sockets: what a trunk's ends say to each other, in frames of package trunk, and as
// machines of package relay.
//
// A [Link] is one side of a trunk. Two members have agreed on its socket, and on a tls.Conn that then reads and writes
// memory, as those of clients do. What is said means something to its [End] only. [Links] are those of an event loop.
//
//   - All that a read brings is taken apart at once, and never is a trunk not read: how much can come, its end bounds.
//   - All that a round has to say leaves in one write, in [Links.Flush].
//   - At most 512 KiB wait for the socket, beside what is small and bounded by itself. Who has more to say waits until
//     64 KiB are left, so what is small finds little before it; and the system takes little in advance.
//   - Each side sends a pulse every second. Three seconds in which nothing comes, or nothing leaves although something
//     waits, end the link. They are counted by ticks that the loop has seen, so that a process that was stopped reads
//     first what came meanwhile.
//   - Whatever is wrong with a link ends it and nothing else, and its end is reported once.
package link
