package main

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/servertest"
	"trellis/engine"
)

func TestScrapersDoNotWriteUnlessTheyAreNamed(t *testing.T) {
	for name, may := range map[string]bool{
		"prometheus": false, "Prometheus": false, "CN=prometheus": false, "CN=Prometheus,O=Example": false, "ann": true, "CN=ann,O=prometheus": true, "": true,
	} {
		if mayWrite(new(options.Options))(name) != may {
			t.Errorf("%q: %t", name, !may)
		}
		if opt := (&options.Options{Writers: []string{"prometheus", "CN=Prometheus,O=Example"}}); mayWrite(opt)(name) != slices.Contains(opt.Writers, name) {
			t.Errorf("%q, with %q named", name, opt.Writers)
		}
	}
}

// A shard that does not answer holds up whoever asks for its counts.
func TestTheConsoleDoesNotKeepAServerThatHangsFromEnding(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	opt := &options.Options{HTTP: "127.0.0.1:0", Console: options.ConsoleRead, MetricsTubes: options.DefaultMetricsTubes}
	mon, err := openMonitor(opt, log)
	if err != nil {
		t.Fatal(err)
	}
	mon.audit, err = openAudit(opt, log)
	servertest.NoError(t, err)
	mon.serve(opt, log)
	hangs, repaired := make(chan struct{}), make(chan struct{})
	defer close(repaired)
	hung := sync.OnceFunc(func() { close(hangs) })
	mon.shows(&metrics.Serving{Engine: engine.New(engine.Config{}), Now: func() engine.Time {
		hung()
		<-repaired
		return 0
	}}, nil)
	select {
	case <-hangs:
	case <-time.After(servertest.Patience):
		t.Fatal("the console does not look at the counts")
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		mon.close(log)
	}()
	select {
	case <-closed:
	case <-time.After(servertest.Patience):
		t.Fatal("the HTTP side does not end")
	}
}
