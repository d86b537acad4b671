package reactor

import (
	"context"
	"fmt"
	"log/slog"
)

// gnetLog gives gnet's messages to the server's log. What gnet finds worth
// telling in normal operation is of no interest to an operator.
type gnetLog struct{ server *Server }

func (g gnetLog) log(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if g.server.log.Enabled(ctx, level) {
		g.server.log.Log(ctx, level, "gnet: "+fmt.Sprintf(format, args...))
	}
}

func (g gnetLog) Debugf(format string, args ...any) { g.log(slog.LevelDebug, format, args) }
func (g gnetLog) Infof(format string, args ...any)  { g.log(slog.LevelDebug, format, args) }
func (g gnetLog) Warnf(format string, args ...any)  { g.log(slog.LevelWarn, format, args) }
func (g gnetLog) Errorf(format string, args ...any) { g.log(slog.LevelError, format, args) }

// Fatalf does not return in gnet's own logger.
func (g gnetLog) Fatalf(format string, args ...any) {
	g.server.die("gnet: " + fmt.Sprintf(format, args...))
}
