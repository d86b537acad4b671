// Package queue has lists that are first come, first served: [Queue] for one goroutine, and [Mailbox], in which
// others leave what they have for it.
package queue
