package bench

import "testing"

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:11300":       "127.0.0.1:11300",
		"127.0.0.1":             "127.0.0.1:11300",
		":1234":                 "127.0.0.1:1234",
		"tcp://127.0.0.1:5":     "127.0.0.1:5",
		"[::1]:1234":            "[::1]:1234",
		"::1":                   "[::1]:11300",
		"unix:/run/x.sock":      "unix:/run/x.sock",
		"unix:///run/x.sock":    "unix:/run/x.sock",
		"/run/x.sock":           "unix:/run/x.sock",
		"[::ffff:127.0.0.1]:12": "127.0.0.1:12",
	} {
		a, err := ParseAddress(in)
		if err != nil || a.String() != want || !a.Loopback() {
			t.Errorf("%q: got %q, loopback %v, %v", in, a, a.Loopback(), err)
		}
	}
	if a, err := ParseAddress("192.0.2.1:1"); err != nil || a.Loopback() {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, in := range []string{"127.0.0.1:x", "127.0.0.1:99999", "a:b:c"} {
		if _, err := ParseAddress(in); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}
