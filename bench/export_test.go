package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

func TestResultsAreWritten(t *testing.T) {
	s := newFakeServer(t, "tcp", fakeFaults{})
	cfg := quick(s.addr, "cycle")
	cfg.Runs, cfg.Log, cfg.Threads = 2, true, 2
	res := mustRun(t, cfg)

	var b bytes.Buffer
	if err := res.WriteTable(&b); err != nil || !strings.Contains(b.String(), "whole unit") || !strings.Contains(b.String(), "2 runs") {
		t.Errorf("%v:\n%s", err, &b)
	}

	b.Reset()
	var back struct {
		Runs []struct {
			Metrics []MetricResult
		}
		Median Summary
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

func TestRecorderKeepsEveryDuration(t *testing.T) {
	var r, sum recorder
	r.reset(0)
	for v := range int64(1000) {
		r.add(metricPut, v)
		r.add(metricPut, v)
		r.add(metricDelete, -v) // a clock that went back counts as nothing
		if v == 500 {
			r.cut(v)
		}
	}
	r.add(metricUnit, 1<<62) // more than can be told
	r.cut(1000)
	sum.merge(&r)
	if p, d, u := sum.hists[metricPut], sum.hists[metricDelete], sum.hists[metricUnit]; p.TotalCount() != 2000 || p.Max() != 999 ||
		d.TotalCount() != 1000 || d.Max() != 0 || u.TotalCount() != 1 {
		t.Errorf("got %d to %d, %d to %d, %d", p.TotalCount(), p.Max(), d.TotalCount(), d.Max(), u.TotalCount())
	}
	if len(sum.intervals) != 5 {
		t.Errorf("%d intervals, want 5", len(sum.intervals))
	}
}

func TestNumbersAreShort(t *testing.T) {
	for ns, want := range map[int64]string{0: "0 us", 999: "0.999 us", 1500: "1.5 us", 123456: "123 us", 2e6: "2 ms", 65e9: "65 s"} {
		if got := short(ns); got != want {
			t.Errorf("%d: got %q, want %q", ns, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%v: got %q, want %q", n, got, want)
		}
	}
}
