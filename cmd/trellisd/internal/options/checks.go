package options

import (
	"slices"
	"strings"

	"trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/listen"
)

// checkHTTP checks the flags of the HTTP side as a whole.
func (c *commandLine) checkHTTP() error {
	if c.HTTP == "" {
		for _, f := range []string{
			"web-config-file", "console", "console-writers", "http-host", "pprof", "metrics-tubes", "metrics-legacy",
		} {
			switch {
			case !c.Changed(f) || f == "console" && c.Console == ConsoleOff:
				continue
			case f == "console":
				f += "=" + c.Console
			}
			return usagef("--%s is for HTTP, which is off; give --http HOST:PORT too", f)
		}
	}
	if c.Console == ConsoleWrite && c.WebConfig == "" {
		return usagef("--console=write lets people delete jobs, and needs to know who they are: " +
			"give --web-config-file with basic_auth_users too")
	}
	if c.Console != ConsoleWrite && c.Writers != nil {
		return usagef("--console-writers says who may write, and nobody may; give --console=write too")
	}
	return nil
}

// checkOutput finds an --output that nothing is printed by.
func (c *commandLine) checkOutput() error {
	if c.Changed("output") && c.Action == Serve {
		return usagef("--output is for what --check-config prints; give that too")
	}
	return nil
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
		return usagef("--skip-damaged is not for a member of a cluster; " +
			"remove a member whose log is damaged, empty its directory, and add it again")
	case files != 0 && files != 3:
		return usagef("--cluster-cert, --cluster-key and --cluster-ca belong together; give all three")
	case files == 0 && len(c.MemberNames)+len(c.AdminNames) > 0:
		return usagef("--cluster-allowed-name and --cluster-admin-name are for certificates; " +
			"give --cluster-cert, --cluster-key and --cluster-ca too")
	case files == 0:
		addrs := []string{c.Node.Addr, c.ListenAddr()}
		for _, n := range c.Nodes {
			addrs = append(addrs, n.Addr)
		}
		if err := wire.CheckPlain(addrs...); err != nil {
			return usagef("%v", err)
		}
	}
	if line.MaxJobSize > maxClusterJobSize {
		line.MaxJobSize = maxClusterJobSize
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

// leastBodyMemory is the least that --body-memory can be.
const leastBodyMemory = 64_000_000

// checkBodies finds a --body-memory that cannot be kept.
func (c *commandLine) checkBodies() error {
	switch {
	case c.BodyMemory == 0:
		return nil
	case c.Binlog == "":
		return usagef("--body-memory needs -b DIR: what is not in memory is on the disk")
	case c.BodyMemory < 5*int64(c.MaxJobSize):
		return usagef("--body-memory has to be five times -z at least")
	}
	return nil
}

// checkTLS finds flags that need others which are not there.
func (c *commandLine) checkTLS() error {
	t := &c.TLS
	switch {
	case t.Cert == "" && t.Key != "":
		return usagef("--tls-key without --tls-cert; give both")
	case t.Cert != "" && t.Key == "":
		return usagef("--tls-cert without --tls-key; give both")
	case t.Cert == "" && len(t.Listen) > 0:
		return usagef("--tls-listen without a certificate; give --tls-cert and --tls-key")
	case t.Cert == "" && t.ClientCA != "":
		return usagef("--tls-client-ca without a certificate; give --tls-cert and --tls-key")
	case t.ClientCA == "" && c.Changed("tls-client-auth"):
		return usagef("--tls-client-auth without --tls-client-ca; give the authorities of the clients")
	}
	return nil
}

// checkProxies finds a TCP listener for proxies that would serve nobody.
func (c *commandLine) checkProxies() error {
	for _, addr := range slices.Concat(c.Listen, c.TLS.Listen) {
		if strings.HasSuffix(addr, listen.ProxySuffix) && !strings.HasPrefix(addr, "unix:") && len(c.ProxyFrom) == 0 {
			return usagef("%s: no proxy may connect there; give --proxy-from with the addresses of the proxies", addr)
		}
	}
	return nil
}
