package audit

import "trellis/engine"

// Command takes a command that was done or denied. It is an engine's Config.Audit.
func (t *Trail) Command(d engine.Deed) {
	kind := done
	if d.Denied {
		kind = denied
		t.denied.Add(1)
	}
	n, ok := t.clients.allow(limitOf{kind, d.Client, d.Op})
	if !ok {
		t.unreported.Add(1)
		return
	}
	attrs := make([]any, 0, 16)
	attrs = append(attrs, "client", d.Client, "peer", d.Peer(), "command", d.Op.String())
	if d.Tube != "" {
		attrs = append(attrs, "tube", d.Tube)
	}
	if d.To != "" {
		attrs = append(attrs, "to", d.To)
	}
	if d.ID != 0 {
		attrs = append(attrs, "id", d.ID)
	}
	attrs = append(attrs, "result", d.Result, "unreported", n)
	// A warning, so that it is in the log whatever -V says.
	t.log.Warn(kind.message(), attrs...)
}

// report tells how many commands of a client were not told of one by one.
func (t *Trail) report(of limitOf, n int) {
	t.log.Warn(of.kind.message()+", too often to tell of each", "client", of.client, "command", of.op.String(),
		"unreported", n)
}
