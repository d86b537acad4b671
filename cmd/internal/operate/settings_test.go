package operate

import "testing"

func TestTimesOfSettingsMayHaveUnits(t *testing.T) {
	for pair, want := range map[string]string{
		"retry-min=10s": "retry-min=10", "retry-max=1h": "retry-max=3600", "expire=24h": "expire=86400", "linger=1m": "linger=60", "expire=": "expire=", "expire=7": "expire=7",
		"rate=50/1m": "rate=50/60", "rate=50": "rate=50", "rate=50/": "rate=50/", "rate=": "rate=",
		"dead=5m": "dead=5m", "max-reserved=5m": "max-reserved=5m", "none": "none", "unknown=5m": "unknown=5m",
	} {
		if got, err := InSeconds(pair); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", pair, got, err, want)
		}
	}
	for _, pair := range []string{"retry-min=500ms", "expire=-1s", "rate=5/x", "retry-max=1d"} {
		if got, err := InSeconds(pair); err == nil {
			t.Errorf("%s: %q", pair, got)
		}
	}
}
