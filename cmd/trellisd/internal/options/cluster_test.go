package options

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"trellis/binlog"
	"trellis/binlog/replica/member"
)

func TestAMembersCommandLine(t *testing.T) {
	n1, n2 := member.Node{Name: "n1", Addr: "127.0.0.1:1"}, member.Node{Name: "n2", Addr: "10.0.0.2:2"}
	ignored := "in a cluster, -f and -F are ignored: most of the members have synced what is acknowledged."
	for _, x := range []struct {
		args   string // separated by |
		change func(*Options)
		notice string
	}{
		{"-bD|--node=n1=127.0.0.1:1", func(o *Options) { o.Cluster.Node = n1 }, ""},
		{"-bD|--node=n1=127.0.0.1:1|--cluster=n1=127.0.0.1:1,n2=10.0.0.2:2|--cluster-cert=c|--cluster-key=k|--cluster-ca=a", func(o *Options) {
			o.Cluster = Cluster{Node: n1, Nodes: []member.Node{n1, n2}, Cert: "c", Key: "k", CA: "a"}
		}, ""},
		{"-bD|--node=n1=127.0.0.1:1|--cluster-listen=127.0.0.1:0", func(o *Options) {
			o.Cluster = Cluster{Node: n1, Listen: "127.0.0.1:0"}
		}, ""},
		{"-bD|--node=n1=127.0.0.1:1|-z16777217", func(o *Options) {
			o.Cluster.Node, o.MaxJobSize = n1, 16<<20
		}, "maximum job size was set to 16777216"},
		{"-bD|--node=n1=127.0.0.1:1|-z16777216", func(o *Options) { o.Cluster.Node, o.MaxJobSize = n1, 16<<20 }, ""},
		{"-bD|--node=n1=127.0.0.1:1|-f0", func(o *Options) { o.Cluster.Node, o.Sync = n1, binlog.SyncAlways }, ignored},
		{"-bD|--node=n1=127.0.0.1:1|-F", func(o *Options) { o.Cluster.Node, o.Sync = n1, binlog.SyncNever }, ignored},
		{"-bD|--node=n1=127.0.0.1:1|-s1048576", func(o *Options) { o.Cluster.Node, o.SegmentSize = n1, 1<<20 }, "in a cluster, -s is ignored."},
	} {
		got, err := Parse(strings.Split(x.args, "|"), nil)
		if err != nil {
			t.Errorf("%s: %v", x.args, err)
			continue
		}
		want := defaults(func(o *Options) {
			o.Binlog = "D"
			x.change(o)
			if x.notice != "" {
				o.Notices = []string{x.notice}
			}
		})
		got.given = nil // TestSettingsTellWhatIsNotTheDefault looks at them
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", x.args, got, want)
		}
		if !got.Cluster.Member() {
			t.Errorf("%s: it is no member", x.args)
		}
	}
}

func TestMistakesOfAMembersCommandLine(t *testing.T) {
	const node = "--node=n1=127.0.0.1:1"
	for _, x := range []struct{ args, want string }{
		{"--cluster=n1=127.0.0.1:1", "--cluster needs --node NAME=HOST:PORT too: which of the members this is"},
		{"-bD|--cluster-key=k", "--cluster needs --node NAME=HOST:PORT too: which of the members this is"},
		{"-bD|--cluster-listen=:1", "--cluster needs --node NAME=HOST:PORT too: which of the members this is"},
		{node, "--node needs -b DIR: a member of a cluster keeps its log there"},
		{"-bD|--node=n1", `invalid node for --node: "n1" is not name=host:port; give NAME=HOST:PORT`},
		{"-bD|" + node + "|--cluster=n1=127.0.0.1:1,n1=127.0.0.1:2", "invalid members for --cluster: the name n1 is there twice; give NAME=HOST:PORT,NAME=HOST:PORT,..."},
		{"-bD|" + node + "|--cluster-listen=1", "invalid address for --cluster-listen: 1; give HOST:PORT or :PORT"},
		{"-bD|" + node + "|--cluster-cert=", "empty file for --cluster-cert; give the path of a file in PEM"},
		{"-bD|" + node + "|--cluster-admin-name=x", "--cluster-allowed-name and --cluster-admin-name are for certificates; give --cluster-cert, --cluster-key and --cluster-ca too"},
		{"-bD|" + node + "|--cluster-allowed-name=q[", "invalid pattern for --cluster-allowed-name: q[; give a name, in which * stands for any characters"},
		{"-bD|" + node + "|--cluster-allowed-name=", "empty pattern for --cluster-allowed-name; give a name that certificates have"},
		{"-bD|" + node + "|--cluster-cert=c|--cluster-ca=a", "--cluster-cert, --cluster-key and --cluster-ca belong together; give all three"},
		{"-bD|" + node + "|--skip-damaged", "--skip-damaged is not for a member of a cluster; remove a member whose log is damaged, empty its directory, and add it again"},
		{"-bD|--node=n1=10.0.0.1:1", "10.0.0.1:1: connections between members need TLS off loopback: --cluster-cert, --cluster-key and --cluster-ca"},
		{"-bD|" + node + "|--cluster=n1=127.0.0.1:1,n2=10.0.0.2:2", "10.0.0.2:2: connections between members need TLS off loopback: --cluster-cert, --cluster-key and --cluster-ca"},
		{"-bD|" + node + "|--cluster-listen=:1", ":1: connections between members need TLS off loopback: --cluster-cert, --cluster-key and --cluster-ca"},
	} {
		_, err := Parse(strings.Split(x.args, "|"), nil)
		if usage := (*UsageError)(nil); !errors.As(err, &usage) || err.Error() != x.want {
			t.Errorf("%s:\n got %v\nwant %s", x.args, err, x.want)
		}
	}
}
