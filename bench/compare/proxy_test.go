//go:build proof

package compare

import "testing"

func TestAServerWithoutTLSIsMeasuredBehindAProxy(t *testing.T) {
	peer(t, "stunnel4")
	server := fakeCommand(t, "a", "plain")
	for _, m := range []Measurement{
		secureCost("cycle", small("cycle", 50), target{}),
		secureIdle("mutual", fewIdle(), true),
		handshakes("resumed", true),
		firstCommand(),
	} {
		t.Run(m.name, func(t *testing.T) {
			if _, notes := measureQuickly(t, m, server); !notes[NoteProxy] {
				t.Error("nothing tells of the proxy")
			}
		})
	}
}
