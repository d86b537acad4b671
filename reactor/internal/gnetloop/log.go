package gnetloop

import (
	"context"
	"fmt"
	"log/slog"
)

// logger gives gnet's messages to a log. What gnet finds worth telling in normal operation is
// of no interest to an operator.
type logger struct {
	log   *slog.Logger
	fatal func(why string, attrs ...any)
}

func (g logger) write(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if g.log.Enabled(ctx, level) {
		g.log.Log(ctx, level, "gnet: "+fmt.Sprintf(format, args...))
	}
}

func (g logger) Debugf(format string, args ...any) { g.write(slog.LevelDebug, format, args) }
func (g logger) Infof(format string, args ...any)  { g.write(slog.LevelDebug, format, args) }
func (g logger) Warnf(format string, args ...any)  { g.write(slog.LevelWarn, format, args) }
func (g logger) Errorf(format string, args ...any) { g.write(slog.LevelError, format, args) }

// Fatalf does not return in gnet's own logger.
func (g logger) Fatalf(format string, args ...any) { g.fatal("gnet: " + fmt.Sprintf(format, args...)) }
