// Package wiretest is for tests of nodes that talk through package wire: a network that
// cuts, blocks one way, delays, repeats and loses, addresses that stay free, and certificates
// that are good or bad.
//
// A Network stands between a dialling node and a real listener. Give each node its own
// Dialer, name the addresses, and change the links while the nodes run:
//
//	net := wiretest.NewNetwork(seed)
//	defer net.Close()
//	net.Name(addr2, "n2")
//	cfg.Dial = net.Dialer("n1")
//	net.Block("n1", "n2")       // nothing arrives at n2, and nobody is told
//	net.Heal()
package wiretest
