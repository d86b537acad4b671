package metrics

import (
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
		}
	}
	ch <- clusterVoters.with(float64(voters))
}
