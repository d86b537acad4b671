// Package clustertest runs clusters for tests: members are processes of trellisd on this machine, as package
// servertest starts them. Only tests use it.
//
// A [Cluster] is on every system. Tests look at its members through HTTP, control requests and clients.
//
//	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
//		w.StartAll()
//		c := w.Leader().Dial()
//		...
//	})
//
// A [Lab] is on Linux. Its members reach each other through a [Network], which cuts connections, delays and
// loses what is sent; the test's own questions pass it by.
//
// # Limits
//
// Processes share the machine with other tests, and leaders on a busy machine may lose their leadership:
// tests wait for conditions, never for a time, and use Undisturbed where a leader must stay.
package clustertest
