package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/binlog/replica"
)

// Cluster is how a member sees its cluster.
type Cluster struct {
	replica.Status
	Leaderships    uint64 // times that this node began to lead
	Gone           uint64 // event loops of members whose clients' jobs this one has freed as the leader
	Contradictions uint64 // records of reservations that did not fit those before them
	Ready          bool   // a client's command would be answered here now
}

func (c *Cluster) voters() (n int) {
	for i := range c.Members {
		if c.Members[i].Voter {
			n++
		}
	}
	return n
}

// memberOf is a member as the leader of its cluster sees it.
type memberOf struct {
	*replica.MemberStatus
	cluster *Cluster
}

var clusterMetrics = list[*Cluster]{
	gauge("beanstalkd_cluster_leads", "1 while this member leads, and executes commands, 0 while it stands by.",
		func(s *Cluster) float64 { return oneIf(s.Serves) }),
	gauge("beanstalkd_cluster_leader_known", "1 while this member knows a leader, itself included, 0 otherwise.",
		func(s *Cluster) float64 { return oneIf(s.Leader != 0) }),
	gauge("beanstalkd_cluster_ready", "1 while a client's command would be answered here, as /readyz says, 0 otherwise.",
		func(s *Cluster) float64 { return oneIf(s.Ready) }),
	gauge("beanstalkd_cluster_term", "The term that this member is in. Each election begins another one.",
		func(s *Cluster) float64 { return float64(s.Term) }),
	counter("beanstalkd_cluster_offices_total", "Times that this member began to serve clients.",
		func(s *Cluster) float64 { return float64(s.Leaderships) }),
	counter("beanstalkd_cluster_gone_loops_total",
		"Event loops of members that had left, or were not heard of for 8 seconds, "+
			"so that this leader freed the jobs of their clients.",
		func(s *Cluster) float64 { return float64(s.Gone) }),
	counter("beanstalkd_cluster_contradictions_total",
		"Records of reservations that did not fit those before them, in what this member has applied. "+
			"Each is a fault of the program.",
		func(s *Cluster) float64 { return float64(s.Contradictions) }),
	gauge("beanstalkd_cluster_committed_entries",
		"Number of the last entry of the cluster's log that is committed, as far as this member knows.",
		func(s *Cluster) float64 { return float64(s.Commit) }),
	gauge("beanstalkd_cluster_applied_entries", "Number of the last entry that this member has applied.",
		func(s *Cluster) float64 { return float64(s.Applied) }),
	gauge("beanstalkd_cluster_to_load_ratio", "Part of its jobs that this member has to load before it can lead, 0 to 1.",
		func(s *Cluster) float64 { return float64(s.ToLoad) / 100 }),
	gauge("beanstalkd_cluster_last_entry", "Number of the last entry in this member's log.",
		func(s *Cluster) float64 { return float64(s.Last) }),
	gauge("beanstalkd_cluster_log_bytes", "Size of this member's log.",
		func(s *Cluster) float64 { return float64(s.LogBytes) }),
	gauge("beanstalkd_cluster_snapshot_entry", "Number of the last entry that this member's snapshot contains.",
		func(s *Cluster) float64 { return float64(s.Snapshot) }),
	gauge("beanstalkd_cluster_snapshot_bytes", "Size of this member's snapshot.",
		func(s *Cluster) float64 { return float64(s.SnapshotBytes) }),
	gauge("beanstalkd_cluster_voters", "Members that vote.",
		func(s *Cluster) float64 { return float64(s.voters()) }),
	gauge("beanstalkd_cluster_free_bytes", "Free space on the disk of this member's directory. Not shown if nobody knows.",
		func(s *Cluster) float64 { return shownIf(s.Free >= 0, float64(s.Free)) }),
	gauge("beanstalkd_cluster_snapshot_age_seconds",
		"How much older this member's snapshot is than the last entry that it has applied. Not shown before the first one.",
		func(s *Cluster) float64 {
			return shownIf(s.SnapshotStamp > 0, time.Duration(s.Stamp-s.SnapshotStamp).Seconds())
		}),
	gauge("beanstalkd_cluster_snapshot_duration_seconds",
		"How long the last snapshot took that this member has taken since its start. Not shown before.",
		func(s *Cluster) float64 { return shownIf(s.SnapshotTook > 0, s.SnapshotTook.Seconds()) }),
	gauge("beanstalkd_cluster_uncommitted_age_seconds",
		"How long the oldest change or read has waited for its commit, 0 if none waits. Shown by the leader.",
		func(s *Cluster) float64 { return shownIf(s.Leads, s.Uncommitted.Seconds()) }),
	counter("beanstalkd_cluster_elections_total", "Elections that this member has won.",
		func(s *Cluster) float64 { return float64(s.Elections) }),
	counter("beanstalkd_cluster_depositions_total", "Times that this member has stopped being the leader.",
		func(s *Cluster) float64 { return float64(s.Depositions) }),
	counter("beanstalkd_cluster_read_rounds_total",
		"Times that this member has asked the others whether it still leads, so that reads could be answered.",
		func(s *Cluster) float64 { return float64(s.ReadRounds) }),
}

// memberMetrics are those of each member, which the leader shows.
var memberMetrics = list[*memberOf]{
	gauge("beanstalkd_cluster_member_alive",
		"1 if the leader has heard the member lately, 0 otherwise. Shown by the leader.",
		func(m *memberOf) float64 { return oneIf(m.Alive) }, "member"),
	gauge("beanstalkd_cluster_member_lag_entries",
		"Entries that the leader has and the member has not. Shown by the leader.",
		func(m *memberOf) float64 {
			return shownIf(m.ID != m.cluster.Self, float64(m.cluster.Last-min(m.cluster.Last, m.Match)))
		}, "member"),
	gauge("beanstalkd_cluster_member_lag_bytes", "About how many bytes of the log the member lacks. Shown by the leader.",
		func(m *memberOf) float64 { return shownIf(m.ID != m.cluster.Self, float64(m.Behind)) }, "member"),
}

func collectCluster(ch chan<- prometheus.Metric, s *Cluster) {
	clusterMetrics.collect(ch, s)
	if !s.Leads {
		return
	}
	for i := range s.Members {
		m := &s.Members[i]
		memberMetrics.collect(ch, &memberOf{m, s}, label("member", m.Name))
	}
}

// Stores counts how long a member's stores and commits take. It is a [replica.Observer].
// Any goroutine may call its methods.
type Stores struct {
	store, commit prometheus.Histogram
}

// NewStores makes Stores with nothing counted.
func NewStores() *Stores {
	return &Stores{
		store: newDistribution("beanstalkd_cluster_store_seconds",
			"How long a store in this member's log took: a write and a sync.", shortTimes),
		commit: newDistribution("beanstalkd_cluster_commit_seconds",
			"How long an entry of the log took, at this member as leader, from its proposal to its commit.", shortTimes),
	}
}

// Stored implements [replica.Observer].
func (s *Stores) Stored(took time.Duration) { s.store.Observe(took.Seconds()) }

// Committed implements [replica.Observer].
func (s *Stores) Committed(took time.Duration) { s.commit.Observe(took.Seconds()) }

var _ replica.Observer = (*Stores)(nil)
