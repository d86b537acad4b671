// Package hosts tells under which names a server of this machine may be asked by HTTP.
//
// A page of another site can have its own name lead to any address, and is then the same site
// as the server there to a browser (DNS rebinding). Such a request comes under the page's name.
package hosts

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Refusal is what a request is answered that is not Own, with [http.StatusMisdirectedRequest].
const Refusal = "this server does not go by the name in the address: use its address, or give the name to --http-host"

// Own reports whether a request came under a name of this host: one of loopback, the address
// that was connected to, or one of names. These may be written with a port, which does not count.
func Own(r *http.Request, names []string) bool {
	name := Name(r.Host)
	if name == "localhost" {
		return true
	}
	if ip := net.ParseIP(name); ip != nil {
		if ip.IsLoopback() {
			return true
		}
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			return ip.Equal(net.ParseIP(Name(local.String())))
		}
		return false
	}
	return slices.ContainsFunc(names, func(n string) bool { return Name(n) == name && name != "" })
}

// Name is the host part of a Host header or an address, in lower case, and without brackets and
// the dot that may stand at the end.
func Name(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		h = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}
