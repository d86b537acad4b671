package listen

import (
	"strings"
	"testing"
)

func TestParseAddressTakesPortsFromAddressesThatNameOne(t *testing.T) {
	for s, want := range map[string]address{
		"localhost":            {host: "localhost", port: "11300"},
		"localhost:99":         {host: "localhost", port: "99"},
		"localhost:http-alt":   {host: "localhost", port: "http-alt"},
		"192.0.2.1":            {host: "192.0.2.1", port: "11300"},
		"192.0.2.1:99":         {host: "192.0.2.1", port: "99"},
		"::":                   {host: "::", port: "11300"},
		"2001:db8::1":          {host: "2001:db8::1", port: "11300"},
		"fe80::1%eth0":         {host: "fe80::1%eth0", port: "11300"},
		"[2001:db8::1]":        {host: "2001:db8::1", port: "11300"},
		"[2001:db8::1]:99":     {host: "2001:db8::1", port: "99"},
		"[fe80::1%eth0]:99":    {host: "fe80::1%eth0", port: "99"},
		"unix:/run/s":          {path: "/run/s"},
		"unix:s":               {path: "s"},
		"unix:/with:colon":     {path: "/with:colon"},
		"UNIX":                 {host: "UNIX", port: "11300"},
		"unix":                 {host: "unix", port: "11300"},
		"host-with-dash.local": {host: "host-with-dash.local", port: "11300"},
	} {
		if got, err := parseAddress(s, "11300"); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"unix:", "a:b:c", "host:", ":99", "[::1", "[::1]x", "[::1]:", "1:2:3:4:5:6:7:8:9"} {
		if got, err := parseAddress(s, "11300"); err == nil {
			t.Errorf("%s: got %+v and no error", s, got)
		}
	}
}

func TestPortsAreNumbersOrServices(t *testing.T) {
	for s, want := range map[string]uint16{"0": 0, "11300": 11300, "65535": 65535, "http": 80} {
		if got, err := portNumber(s); err != nil || got != want {
			t.Errorf("%s: got %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "65536", "-1", "+1", " 80", "0x50", "no-such-service"} {
		if got, err := portNumber(s); err == nil {
			t.Errorf("%q: got %d", s, got)
		} else if !strings.Contains(err.Error(), "no such port or service") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
