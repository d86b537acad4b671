// Package buffer has pools of byte buffers for what waits: input that is not executed, output that is
// not taken, input that may have to be sent again.
//
// Small buffers have a pool of their own: a client that sends twenty bytes behind a waiting reserve must
// not hold the memory of one that sent 64 KiB. A buffer that is larger than 1 MiB goes to the garbage
// collector.
//
// A Buffer belongs to whoever got it from [Append] or [Get], until Release. Any goroutine may call the
// functions of this package.
package buffer
