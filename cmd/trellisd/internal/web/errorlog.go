package web

import (
	"log/slog"
	"strings"

	"trellis/reactor/throttle"
)

// errorLog writes to the log what an http.Server has to tell, a line at a time.
type errorLog struct {
	log     *slog.Logger
	clients throttle.Throttle // for what clients can cause as often as they like
}

// Write implements [io.Writer] for a [log.Logger].
func (l *errorLog) Write(p []byte) (int, error) {
	text := strings.TrimSuffix(string(p), "\n")
	if !strings.HasPrefix(text, "http: TLS handshake error") && !strings.HasPrefix(text, "http2: server") {
		l.log.Warn(text)
	} else if n, ok := l.clients.Allow(); ok {
		l.log.Warn(text, "unreported", n)
	}
	return len(p), nil
}
