// Package trunk is the format of what a loop of a gateway and the leader say to each other over
// the one connection between them. It does no I/O.
//
// # Frames
//
// A trunk carries frames of kind 9, see package frame, with a payload of at most 32 KiB: items,
// each of them whole. A frame without items is a pulse: the sender lives. An item is, with all
// integers little-endian:
//
//	 0  1  kind
//	 1  1  flags
//	 2  2  length of the data, at most 16 KiB
//	 4  4  channel
//	 8  4  number
//	12     data
//
// # Channels
//
// A channel is one client of the gateway. Channel 0 is the trunk itself. The gateway opens a channel under a
// number that is free, the smaller the better, because the leader finds it by index. It sends exactly one
// close, whoever has ended the channel, and nothing behind it; the leader sends exactly one end, and nothing
// behind it. When both were sent, the number is free. Until then, what comes for a channel that one's own
// side has ended was on its way, and is dropped.
//
// # Items
//
// To the leader. Where no number is named it is 0, and where no data are, there are none.
//
//	 1 grant       channel 0; the number under which this trunk knows it, not 0: a Grant. With the flag More
//	               another grant of this number follows, which has further tubes. Sent again, it
//	               counts for channels that are opened from then on
//	 2 open        a grant's number, 0 for a client that may do everything: an Open
//	 3 resume      an open for a session that goes on: a Resume, in place of an Open. With the flag More
//	               another resume of this channel follows, which has further tubes
//	 4 input       what the client has sent
//	 5 effects     what the log tells of commands of a resumed session that the client has no answer to, in
//	               their order. With the flag Last these were all
//	 6 credit      number: so many bytes more of replies may be sent
//	 7 half-close  the client sends no more. With the flag Leaves it is the gateway that ends: all is
//	               executed that has come, and a wait for a job is not answered. With the flag Ahead there
//	               is more input that the client has sent, and another half-close follows it
//	 8 close       the client has gone, or has taken all that was sent before an end
//	 9 attached    channel 0; all sessions of this loop that go on have been resumed
//	10 ping        channel 0; any number
//	11 leave       channel 0; the gateway ends
//
// To the gateway:
//
//	12 welcome     channel 0: a Welcome
//	13 replies     for the client. number: the low 32 bits of how much of its input is answered when it
//	               has taken them. With the flag More the last of these replies goes on in another item
//	14 state       what the client will have asked for when it has taken the next replies: with the flags
//	               Uses, Watches, or Ignores, a tube; Watches has its weight as number, 0 if it was given
//	               none. With Chooses, number is how its reserves choose: see Choice
//	 6 credit      number: so many bytes more of input may be sent
//	15 end         the session is over. number: the low 32 bits of how much of its input was
//	               executed. With the flag Reset, the client has to know that it was not answered
//	16 denied      a Denied
//	17 pong        channel 0; the number of the ping
//	18 retire      channel 0; no more commands are executed
//
// # Resume
//
// A gateway resumes sessions where the welcome says that this version of the leader's can. What it sends of a
// session's input is what follows the answered part. If it has sent some of that before, to whomever, the
// resume says so, and the leader executes nothing before it has the last of the effects: the command that ends
// where an effect is has been executed.
//
// # Credits
//
// A channel begins with FirstCredit bytes in each direction: of input that the leader has not executed,
// and of replies that the client has not taken. Nobody sends more, and it is an
// error of the protocol to do so.
package trunk
