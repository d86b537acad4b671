package metrics

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// series maps the series of a family, each by the values of its labels, to
// their values.
func series(families []*dto.MetricFamily, name string) map[string]float64 {
	m := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, metric := range f.Metric {
			var labels []string
			for _, l := range metric.Label {
				labels = append(labels, l.GetValue())
			}
			m[strings.Join(labels, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return m
}

func TestTheTubesWithTheMostJobsAreShownAndTheRestIsSummedUp(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	for i, n := range []int{2, 5, 1, 5, 3} {
		for range n {
			c.put(fmt.Sprint("t", i), "1", "0")
		}
	}
	r.now += 5e9
	c.do("use other\r\npause-tube t2 60\r\nwatch t0\r\nreserve-job 1\r\n")
	for _, tt := range []struct {
		limit  int
		shown  map[string]float64
		folded float64
		ready  float64 // in the tubes that are not shown
		paused float64
	}{
		{7, map[string]float64{"default": 0, "other": 0, "t0": 2, "t1": 5, "t2": 1, "t3": 5, "t4": 3}, 0, 0, 0},
		{6, map[string]float64{"default": 0, "t0": 2, "t1": 5, "t2": 1, "t3": 5, "t4": 3}, 1, 0, 0},
		{4, map[string]float64{"default": 0, "t1": 5, "t3": 5, "t4": 3}, 3, 2, 1},
		{2, map[string]float64{"default": 0, "t1": 5}, 5, 10, 1},
		{1, map[string]float64{"default": 0}, 6, 15, 1},
	} {
		got := gather(t, pedantic(r.sources(), Options{Tubes: tt.limit}))
		if jobs := series(got, "beanstalkd_tube_jobs_total"); !maps.Equal(jobs, tt.shown) {
			t.Errorf("limit %d: shows %v, want %v", tt.limit, jobs, tt.shown)
		}
		if folded := series(got, "beanstalkd_tubes_folded")[""]; folded != tt.folded {
			t.Errorf("limit %d: %v tubes are folded, want %v", tt.limit, folded, tt.folded)
		}
		if ready := series(got, "beanstalkd_other_tubes_current_jobs")["ready"]; ready != tt.ready {
			t.Errorf("limit %d: %v ready jobs in other tubes, want %v", tt.limit, ready, tt.ready)
		}
		if paused := series(got, "beanstalkd_other_tubes_paused")[""]; paused != tt.paused {
			t.Errorf("limit %d: %v other tubes are paused, want %v", tt.limit, paused, tt.paused)
		}
		age := 0.0
		if tt.ready > 0 {
			age = 5
		}
		if oldest := series(got, "beanstalkd_other_tubes_oldest_ready_age_seconds")[""]; oldest != age {
			t.Errorf("limit %d: age %v in other tubes, want %v", tt.limit, oldest, age)
		}
	}
}

func TestShownAndOtherTubesAreTheWhole(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	for i := range 200 {
		c.put(fmt.Sprint("t", i%50), "1", []string{"0", "10"}[i%2])
	}
	for limit := 1; limit < 60; limit += 7 {
		got := gather(t, pedantic(r.sources(), Options{Tubes: limit}))
		whole := series(got, "beanstalkd_current_jobs")
		sum := maps.Clone(series(got, "beanstalkd_other_tubes_current_jobs"))
		for labels, n := range series(got, "beanstalkd_tube_current_jobs") {
			state, _, _ := strings.Cut(labels, " ")
			sum[state] += n
		}
		if !maps.Equal(sum, whole) {
			t.Errorf("limit %d: shown and other tubes together: %v, the server: %v", limit, sum, whole)
		}
	}
}

func TestATubeThatHasGoneDisappears(t *testing.T) {
	r := newRig(t)
	registry := pedantic(r.sources(), Options{Tubes: allTubes})
	c := r.dial()
	c.put("short-lived", "1", "0")
	if shown := series(gather(t, registry), "beanstalkd_tube_current_using"); shown["short-lived"] != 1 {
		t.Fatalf("the tube is not shown: %v", shown)
	}
	c.do("delete 1\r\nuse default\r\n")
	if shown := series(gather(t, registry), "beanstalkd_tube_current_using"); len(shown) != 1 || shown["default"] != 1 {
		t.Fatalf("still shown: %v", shown)
	}
}

func BenchmarkGather(b *testing.B) {
	for _, tubes := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint("tubes=", tubes), func(b *testing.B) {
			r := newRig(b)
			c := r.dial()
			for i := range tubes {
				c.put(fmt.Sprint("tube-number-", i), "1", "0")
			}
			registry := New(r.wholeSources(), Options{Tubes: 1000})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestOrphansAreCountedByTubeAndInAll(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	for tube, n := range map[string]int{"t0": 3, "t1": 2, "t2": 1} {
		for range n {
			c.put(tube, "1", "0")
		}
		c.do("set-tube " + tube + " linger=60\r\n")
	}
	worker := r.dial()
	worker.do("watch t0\r\nwatch t1\r\n" + strings.Repeat("reserve-with-timeout 0\r\n", 5))
	worker.session.Close(r.now)
	for limit, shown := range map[int]map[string]float64{
		1: {"default": 0}, 2: {"default": 0, "t0": 3}, 4: {"default": 0, "t0": 3, "t1": 2, "t2": 0},
	} {
		got := gather(t, pedantic(r.sources(), Options{Tubes: limit}))
		if tubes := series(got, "beanstalkd_tube_orphaned_jobs"); !maps.Equal(tubes, shown) {
			t.Errorf("limit %d: %v, want %v", limit, tubes, shown)
		}
		if all := series(got, "beanstalkd_orphaned_jobs")[""]; all != 5 {
			t.Errorf("limit %d: %v orphans in all, want 5", limit, all)
		}
	}
}
