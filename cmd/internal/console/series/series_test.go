package series

import (
	"math"
	"testing"
)

func of(n Number, v float32) Point {
	p := Unknown()
	p[n] = v
	return p
}

func isNaN(v float32) bool { return math.IsNaN(float64(v)) }

func TestSecondsThatWereLeftOutAreGaps(t *testing.T) {
	var r Ring
	r.Add(1000, of(Ready, 1))
	r.Add(1003, of(Ready, 4))
	got := r.LastSeconds(1004)
	if len(got) != Seconds {
		t.Fatalf("%d points", len(got))
	}
	want := map[int]float32{Seconds - 5: 1, Seconds - 2: 4}
	for i, p := range got {
		if v, ok := want[i]; ok && p[Ready] != v || !ok && !isNaN(p[Ready]) {
			t.Errorf("point %d is %v, want %v", i, p[Ready], v)
		}
		if !isNaN(p[In]) {
			t.Errorf("point %d has %v where nothing was measured", i, p[In])
		}
	}
}

func TestAMinuteIsTheMeanOfItsSeconds(t *testing.T) {
	var r Ring
	for s := int64(600); s < 720; s++ {
		v := float32(10)
		if s >= 660 {
			v = float32(s - 660)
		}
		r.Add(s, of(In, v))
	}
	got := r.LastMinutes(719)
	if a, b := got[Minutes-2][In], got[Minutes-1][In]; a != 10 || b != 29.5 {
		t.Errorf("minutes are %v and %v, want 10 and 29.5", a, b)
	}
	if !isNaN(got[Minutes-3][In]) {
		t.Errorf("before the first minute there is %v", got[Minutes-3][In])
	}
}

func TestNothingOldComesBackAfterALongGap(t *testing.T) {
	for _, gap := range []int64{1, 59, 61, Seconds - 1, Seconds, Seconds + 1, 60 * Minutes, 61 * Minutes, 1e6} {
		var r Ring
		r.Add(6000, of(Out, 7))
		r.Add(6000+gap, of(Out, 9))
		check := func(kind string, points []Point, step int64) {
			t.Helper()
			for i, p := range points {
				at := (6000+gap)/step - int64(len(points)) + 1 + int64(i)
				first, second := at == 6000/step, at == (6000+gap)/step
				switch {
				case first && second: // the mean of both
				case first && p[Out] != 7, second && p[Out] != 9, !first && !second && !isNaN(p[Out]):
					t.Errorf("gap %d: %s at %d is %v", gap, kind, at, p[Out])
				}
			}
		}
		check("second", r.LastSeconds(6000+gap), 1)
		check("minute", r.LastMinutes(6000+gap), 60)
	}
}

func TestAClockThatGoesBackALittleChangesNothing(t *testing.T) {
	var r Ring
	r.Add(5000, of(Ready, 1))
	r.Add(5000-setBack, of(Ready, 2))
	r.Add(5000, of(Ready, 3))
	if got := r.LastSeconds(5000)[Seconds-1][Ready]; got != 1 {
		t.Errorf("got %v", got)
	}
	var empty Ring
	for _, p := range append(empty.LastSeconds(9), empty.LastMinutes(9)...) {
		if !isNaN(p[Ready]) {
			t.Fatalf("an empty ring has %v", p)
		}
	}
}

func TestAClockThatIsSetBackBeginsANewRing(t *testing.T) {
	for _, back := range []int64{setBack + 1, Seconds, 3600, 60*Minutes + 7} {
		var r Ring
		for s := int64(100_000); s < 100_000+2*Seconds; s++ {
			r.Add(s, of(Ready, 1))
		}
		now := 100_000 + 2*Seconds - 1 - back
		r.Add(now, of(Ready, 2))
		r.Add(now+1, of(Ready, 4))
		for i, p := range r.LastSeconds(now + 1) {
			switch want := map[int]float32{Seconds - 2: 2, Seconds - 1: 4}[i]; {
			case want == 0 && !isNaN(p[Ready]), want != 0 && p[Ready] != want:
				t.Fatalf("set back by %d s, point %d is %v", back, i, p[Ready])
			}
		}
		known := 0
		for _, p := range r.LastMinutes(now + 1) {
			if !isNaN(p[Ready]) {
				known++
			}
		}
		if first, second := now/60, (now+1)/60; int64(known) != 1+second-first {
			t.Errorf("set back by %d s, %d minutes are known", back, known)
		}
	}
}
