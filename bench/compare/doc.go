// Package compare starts servers and measures them in turn under the same load.
//
// # Use
//
//	c := compare.Comparison{Servers: servers, Rounds: 3, ServerCPUs: []int{0}, LoadCPUs: []int{1}}
//	table, err := c.Run(ctx, compare.StandardMatrix())
//	...
//	err = errors.Join(table.WriteTable(os.Stdout), table.Err())
//
// A server is a name and a command; see Server. A Measurement is one load, or a sequence of loads, with the figures
// that are taken from it: Load makes one of a configuration, Recovery one of a kill and a restart, and
// StandardMatrix, DurabilityMatrix, ClusterMatrix and SpillMatrix return the measurements of
// `trellis bench compare --matrix`.
//
// # TLS
//
// Measurements over TLS start a server with trellisd's options for it and a certificate of their own. A server that
// does not know the options gets stunnel in front, which is looked for in the path as stunnel4 and as stunnel, and
// counts as a part of the server.
//
// # Clusters
//
// A server with {cluster} in its command is three processes. The load goes to the one that serves
// clients; what the others use is a figure of its own. The protocol does not tell how changes are
// batched, so this is read from the metrics.
//
// # Invariants
//
//   - Each round measures every server once, each time freshly started, in an order that changes with the round, so
//     that what drifts on the machine affects all of them.
//   - Ratios are taken within a round. A ratio needs the values of both servers in all rounds.
//   - Servers and generator share no processor when processors are named.
//   - A server that breaks the protocol keeps its figures, and the table says so. One that ends instead of starting,
//     because it lacks an option, has no figures in that row.
//
// # Limits
//
// Servers listen on 127.0.0.1. A port is chosen before the server starts, so that another program may take it in
// between; the start then fails. Processors are bound on Linux only.
package compare
