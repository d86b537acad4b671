package replica

import "slices"

// Entries of a later version of the format may be written once all members can read them.
// Each says with its answers to heartbeats what it can read, and the leader proposes an entry
// that says what is allowed. Nothing takes that back: who cannot read it does not get in any more.

// VersionOfTrunks is the version from which on all members take trunks, and dial them.
const VersionOfTrunks = 4

// versionOfLinger is the version from which on tubes may linger, and reservations there are on record.
const versionOfLinger = 5

// raiseVersion allows the latest version of entries that all members can read, if it is
// later than the one that is allowed.
func (c *consensus) raiseVersion() {
	l := c.leadership
	if l == nil || !l.serving.Load() || c.rn.BasicStatus().LeadTransferee != 0 {
		return
	}
	to := c.node.opts.Newest
	cs := c.conf
	for _, id := range slices.Concat(cs.GetVoters(), cs.GetLearners(), cs.GetVotersOutgoing(), cs.GetLearnersNext()) {
		if id != uint64(c.node.opts.Self) {
			to = min(to, c.reports[id].version)
		}
	}
	if to > max(1, c.raisedVersion, c.node.applier.applied().Version) {
		c.raisedVersion = to
		c.node.opts.Log.Info("all members can read a later version of entries", "version", to)
		l.raise(uint16(to))
	}
}
