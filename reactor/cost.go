package reactor

// What the loop does between two polls is counted in units of cost, of about a quarter of a
// microsecond each. The engine keeps the account: Refill begins a round with a budget,
// Spend takes some off.
const (
	// connCost is to deal with a connection, a read or a write included,
	// beside the commands that it has executed.
	connCost = 32
	// lookCost is to look at a connection's deadline.
	lookCost = 2
	// overrun is how many commands a connection may have executed once the budget
	// is spent, so that a client that sends a few at a time never waits for its
	// turn, and overrunCost how much they may cost.
	overrun     = 32
	overrunCost = 256
)
