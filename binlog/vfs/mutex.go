package vfs

// Mutex is one whose holder may wait for a disk: a simulated clock goes on while others wait for it.
type Mutex chan struct{}

// NewMutex returns one that nobody holds.
func NewMutex() Mutex { return make(Mutex, 1) }

// Lock waits until nobody else holds it.
func (m Mutex) Lock() { m <- struct{}{} }

// Unlock lets the next one have it.
func (m Mutex) Unlock() { <-m }
