// Package metrics shows Prometheus what the server does.
//
// [New] makes a registry with one collector of the package's own beside those of
// the Go runtime, the process and the commits of the binlog. The collector keeps
// no numbers: every scrape takes one snapshot of the engine, shard by shard, and of
// the counters that the reactor and the binlog keep anyway. So no command pays
// for being counted twice, a scrape is no command and moves no counter of the
// protocol, and a tube that has gone is gone from the next scrape.
//
// # Names
//
// Names begin with beanstalkd_, end in _total if they count, and are in seconds
// and bytes. Where the protocol's statistics have a key, the name keeps its
// words: current-producers is beanstalkd_current_producers.
//
// # Bounds
//
// The tubes with the most jobs are shown one by one, up to a limit, and of equals
// those that were shown last time; what the rest hold is summed up under
// beanstalkd_other_tubes_. Of the rest no counters are
// shown: tubes move in and out of it, so that their sum would be no counter. The
// durations of a command are shown from its first use on. All accounts are shown: package
// access has 1,000 at most.
//
// # Histograms
//
// Durations are counted in the buckets of Prometheus's native histograms. A
// scrape in the protocol-buffer format has them as they are; every format has
// classic buckets as well. Those bounds, powers of two, are bounds of native
// buckets too, so that the classic counts are exact.
package metrics
