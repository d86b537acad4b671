package reactor

import "trellis/reactor/internal/accept"

// listenerID is the number of the listener that a connection came from. It also says of which kind the connection is.
type listenerID accept.ListenerID

// ownListener is the number of the connections that the process has made to itself.
const ownListener = listenerID(accept.Own)

// tls reports whether the listener's clients speak TLS.
func (id listenerID) tls() bool { return accept.ListenerID(id).TLS() }

// own reports whether the process has made the connection to itself.
func (id listenerID) own() bool { return id == ownListener }
