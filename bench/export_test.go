package bench_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/internal/faulty"
	"trellis/bench/load"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

func TestResultsAreWritten(t *testing.T) {
	s := faulty.Start(t, "tcp", faulty.Faults{})
	res, err := load.Run(t.Context(), bench.Config{
		Addr: s.Addr, Scenario: "cycle", Conns: 8, Count: 200, Seed: 7, ReplyTimeout: time.Minute, Runs: 2, Log: true, Threads: 2,
	})
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	if err := res.WriteTable(&b); err != nil || !strings.Contains(b.String(), "whole unit") || !strings.Contains(b.String(), "2 runs") {
		t.Errorf("%v:\n%s", err, &b)
	}

	b.Reset()
	var back struct {
		Runs []struct {
			Metrics []bench.MetricResult
		}
		Median bench.Summary
	}
	if err := res.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Runs) != 2 || back.Runs[0].Metrics[0].Name != "put" || back.Runs[0].Metrics[0].Count != 200 || back.Median.Units != 200 {
		t.Errorf("got %+v", back)
	}

	b.Reset()
	if err := res.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if want := 1 + 2*len(res.Runs[0].Metrics); err != nil || len(lines) != want {
		t.Errorf("%d lines, want %d, %v", len(lines), want, err)
	}

	b.Reset()
	if err := res.WriteLog(&b); err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int64)
	in := hdr.NewHistogramLogReader(&b)
	for {
		h, err := in.NextIntervalHistogram()
		if err != nil {
			t.Fatal(err)
		}
		if h == nil {
			break
		}
		counts[h.Tag()] += h.TotalCount()
	}
	if counts["put"] != 400 || counts["whole-unit"] != 400 || counts["put-to-reserved"] != 400 {
		t.Errorf("got %v", counts)
	}
}
