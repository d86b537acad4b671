package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trellis/binlog/replica"
)

// Cluster is how a member sees its cluster.
type Cluster struct {
	replica.Status
	Offices uint64 // times that this node began to serve clients
}

var (
	clusterLeads = gauge("beanstalkd_cluster_leads",
		"1 while this member serves clients, 0 while it stands by.")
	clusterLeaderKnown = gauge("beanstalkd_cluster_leader_known",
		"1 while this member knows a leader, itself included, 0 otherwise.")
	clusterTerm = gauge("beanstalkd_cluster_term",
		"The term that this member is in. Each election begins another one.")
	clusterOffices = counter("beanstalkd_cluster_offices_total",
		"Times that this member began to serve clients.")
	clusterCommitted = gauge("beanstalkd_cluster_committed_entries",
		"Number of the last entry of the cluster's log that is committed, as far as this member knows.")
	clusterApplied = gauge("beanstalkd_cluster_applied_entries",
		"Number of the last entry that this member has applied.")
	clusterLast = gauge("beanstalkd_cluster_last_entry",
		"Number of the last entry in this member's log.")
	clusterLog = gauge("beanstalkd_cluster_log_bytes",
		"Size of this member's log.")
	clusterSnapshotEntry = gauge("beanstalkd_cluster_snapshot_entry",
		"Number of the last entry that this member's snapshot contains.")
	clusterSnapshot = gauge("beanstalkd_cluster_snapshot_bytes",
		"Size of this member's snapshot.")
	clusterVoters = gauge("beanstalkd_cluster_voters",
		"Members that vote.")
	clusterAlive = gauge("beanstalkd_cluster_member_alive",
		"1 if the leader has heard the member lately, 0 otherwise. Shown by the leader.", "member")
	clusterFree = gauge("beanstalkd_cluster_free_bytes",
		"Free space on the disk of this member's directory. Not shown if nobody knows.")
	clusterSnapshotAge = gauge("beanstalkd_cluster_snapshot_age_seconds",
		"How much older this member's snapshot is than the last entry that it has applied. Not shown before the first one.")
	clusterSnapshotTook = gauge("beanstalkd_cluster_snapshot_duration_seconds",
		"How long the last snapshot took that this member has taken since its start. Not shown before.")
	clusterUncommitted = gauge("beanstalkd_cluster_uncommitted_age_seconds",
		"How long the oldest change or read has waited for its commit, 0 if none waits. Shown by the leader.")
	clusterElections = counter("beanstalkd_cluster_elections_total",
		"Elections that this member has won.")
	clusterDepositions = counter("beanstalkd_cluster_depositions_total",
		"Offices that this member has lost, given up or handed over.")
	clusterRounds = counter("beanstalkd_cluster_read_rounds_total",
		"Times that this member has asked the others whether it still leads, so that reads could be answered.")
	clusterBehind = gauge("beanstalkd_cluster_member_lag_bytes",
		"About how many bytes of the log the member lacks. Shown by the leader.", "member")
	clusterLag = gauge("beanstalkd_cluster_member_lag_entries",
		"Entries that the leader has and the member has not. Shown by the leader.", "member")
)

func collectCluster(ch chan<- prometheus.Metric, s *Cluster) {
	ch <- clusterLeads.with(oneIf(s.Serves))
	ch <- clusterLeaderKnown.with(oneIf(s.Leader != 0))
	ch <- clusterTerm.with(float64(s.Term))
	ch <- clusterOffices.with(float64(s.Offices))
	ch <- clusterCommitted.with(float64(s.Commit))
	ch <- clusterApplied.with(float64(s.Applied))
	ch <- clusterLast.with(float64(s.Last))
	ch <- clusterLog.with(float64(s.LogBytes))
	ch <- clusterSnapshotEntry.with(float64(s.Snapshot))
	ch <- clusterSnapshot.with(float64(s.SnapshotBytes))
	if s.Free >= 0 {
		ch <- clusterFree.with(float64(s.Free))
	}
	if s.SnapshotStamp > 0 {
		ch <- clusterSnapshotAge.with(time.Duration(s.Stamp - s.SnapshotStamp).Seconds())
	}
	if s.SnapshotTook > 0 {
		ch <- clusterSnapshotTook.with(s.SnapshotTook.Seconds())
	}
	if s.Leads {
		ch <- clusterUncommitted.with(s.Uncommitted.Seconds())
	}
	ch <- clusterElections.with(float64(s.Elections))
	ch <- clusterDepositions.with(float64(s.Depositions))
	ch <- clusterRounds.with(float64(s.ReadRounds))
	voters := 0
	for i := range s.Members {
		m := &s.Members[i]
		if m.Voter {
			voters++
		}
		if !s.Leads {
			continue
		}
		name := label("member", m.Name)
		ch <- clusterAlive.with(oneIf(m.Alive), name)
		if m.ID != s.Self {
			ch <- clusterLag.with(float64(s.Last-min(s.Last, m.Match)), name)
			ch <- clusterBehind.with(float64(m.Behind), name)
		}
	}
	ch <- clusterVoters.with(float64(voters))
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

func (s *Stores) register(r prometheus.Registerer) { r.MustRegister(s.store, s.commit) }
