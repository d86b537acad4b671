package metrics

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
)

// numbers reads the reply to stats or stats-tube, leaving out what is no number.
func numbers(reply string) map[string]float64 {
	m := make(map[string]float64)
	for line := range strings.Lines(reply) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch value {
		case "true":
			m[key] = 1
		case "false":
			m[key] = 0
		default:
			if n, err := strconv.ParseFloat(value, 64); err == nil {
				m[key] = n
			}
		}
	}
	return m
}

func TestLegacyNamesAreTheKeysOfStats(t *testing.T) {
	r := newRig(t)
	busy(r)
	src := r.sources()
	c := r.dial()
	want := make(map[string]float64)
	for key, n := range numbers(c.do("stats\r\n")) {
		if key != "pid" { // the exporter leaves it out, too
			want[strings.ReplaceAll(key, "-", "_")] = n
		}
	}
	for _, tube := range []string{"default", "mail", "thumbs/large"} {
		for key, n := range numbers(c.do("stats-tube " + tube + "\r\n")) {
			want["tube_"+strings.ReplaceAll(key, "-", "_")+" "+tube] = n
		}
	}
	want["cmd_stats_tube"] += 3

	got := make(map[string]float64)
	for _, f := range gather(t, pedantic(src, Options{Tubes: allTubes, Legacy: true})) {
		name := f.GetName()
		if strings.HasPrefix(name, "beanstalkd_") {
			continue
		}
		for _, m := range f.Metric {
			key := name
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			got[key] = m.Gauge.GetValue()
		}
	}
	if !maps.Equal(got, want) {
		for key := range want {
			if v, ok := got[key]; !ok || v != want[key] {
				t.Errorf("%s: got %v, %v; want %v", key, v, ok, want[key])
			}
		}
		for key := range got {
			if _, ok := want[key]; !ok {
				t.Errorf("%s: not wanted", key)
			}
		}
	}
}

// The engine of a cluster's leader began with a snapshot, not with the server.
func TestTheLegacyUptimeIsThatOfTheServer(t *testing.T) {
	src := newRig(t).sources()
	src.Uptime = func() time.Duration { return 77*time.Second + 900*time.Millisecond }
	for _, f := range gather(t, pedantic(src, Options{Tubes: allTubes, Legacy: true})) {
		if f.GetName() == "uptime" {
			if got := f.Metric[0].Gauge.GetValue(); got != 77 {
				t.Errorf("%v seconds, want 77", got)
			}
			return
		}
	}
	t.Error("not shown")
}

func TestLegacyNamesAreShownOnlyOnDemand(t *testing.T) {
	for _, f := range gather(t, pedantic(newRig(t).sources(), Options{Tubes: allTubes})) {
		if !strings.HasPrefix(f.GetName(), "beanstalkd_") {
			t.Errorf("%s is shown", f.GetName())
		}
	}
}
