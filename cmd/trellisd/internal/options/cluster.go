package options

import (
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
)

// MaxClusterJobSize is the largest value of -z of a member of a cluster, in bytes.
// Greater ones are lowered to it with a notice.
const MaxClusterJobSize = 16 << 20

// Cluster is what a member of a cluster is told. The zero Cluster is that of a server
// alone.
type Cluster struct {
	Node   member.Node   // this node; its name is empty on a server alone
	Nodes  []member.Node // all of --cluster; nil if it was not given
	Listen string        // HOST:PORT for the other members; empty: the node's own address

	Cert, Key, CA string // files in PEM; all are empty where all members are on loopback
}

// Member tells whether the server is a member of a cluster.
func (c *Cluster) Member() bool { return c.Node.Name != "" }

// ListenAddr is the address for connections of the other members.
func (c *Cluster) ListenAddr() string {
	if c.Listen != "" {
		return c.Listen
	}
	return c.Node.Addr
}

// checkCluster checks the flags of a cluster's member as a whole.
func (line *commandLine) checkCluster() error {
	c := &line.Cluster
	files := 0
	for _, f := range []string{c.Cert, c.Key, c.CA} {
		if f != "" {
			files++
		}
	}
	switch {
	case !c.Member() && (c.Nodes != nil || c.Listen != "" || files > 0):
		return usagef("--cluster needs --node NAME=HOST:PORT too: which of the members this is")
	case !c.Member():
		return nil
	case line.Binlog == "":
		return usagef("--node needs -b DIR: a member of a cluster keeps its log there")
	case line.SkipDamaged:
		return usagef("--skip-damaged is not for a member of a cluster; remove a member whose log is damaged, empty its directory, and add it again")
	case files != 0 && files != 3:
		return usagef("--cluster-cert, --cluster-key and --cluster-ca belong together; give all three")
	case files == 0:
		addrs := []string{c.Node.Addr, c.ListenAddr()}
		for _, n := range c.Nodes {
			addrs = append(addrs, n.Addr)
		}
		if err := wire.CheckPlain(addrs...); err != nil {
			return usagef("%v", err)
		}
	}
	if line.MaxJobSize > MaxClusterJobSize {
		line.MaxJobSize = MaxClusterJobSize
		line.notice("maximum job size was set to %d", line.MaxJobSize)
	}
	if line.Changed("sync-interval") || line.Changed("no-sync") {
		line.notice("in a cluster, -f and -F are ignored: most of the members have synced what is acknowledged.")
	}
	if line.Changed("segment-size") {
		line.notice("in a cluster, -s is ignored.")
	}
	return nil
}
