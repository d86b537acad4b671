package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"trellis/cmd/trellisd/internal/options"
)

func newLogger(w io.Writer, opt *options.Options) *slog.Logger {
	ho := &slog.HandlerOptions{Level: opt.LogLevel}
	if opt.LogFormat == options.LogJSON {
		return slog.New(slog.NewJSONHandler(w, ho))
	}
	return slog.New(slog.NewTextHandler(w, ho))
}

// say writes a line to the user about the start: to the log if a program reads
// it, and as beanstalkd would otherwise, for somebody at a terminal.
func say(w io.Writer, opt *options.Options, level slog.Level, line string) {
	if opt.LogFormat == options.LogJSON {
		newLogger(w, opt).Log(context.Background(), level, line)
		return
	}
	fmt.Fprintln(w, "trellisd: "+line)
}
