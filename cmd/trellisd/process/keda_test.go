//go:build proof

package process

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// scaler asks for a value as KEDA's metrics-api scaler does: a GET of the URL, with the name and the
// password if authMode is basic, a status of 200 and nothing else, and a number where the valueLocation, which
// is one of GJSON, leads.
func scaler(t *testing.T, trigger map[string]string, address, password string) (float64, error) {
	t.Helper()
	u, err := url.Parse(trigger["url"])
	servertest.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+u.Path, nil)
	servertest.NoError(t, err)
	req.Host = u.Host
	if trigger["authMode"] == "basic" {
		req.SetBasicAuth("ann", password)
	}
	res, err := http.DefaultClient.Do(req)
	servertest.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	servertest.NoError(t, err)
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", res.Status, body)
	}
	var values map[string]any
	servertest.NoError(t, json.Unmarshal(body, &values))
	location := trigger["valueLocation"]
	v, ok := values[location].(float64)
	if !ok || strings.ContainsAny(location, `.*?|#@!{}[]\`) {
		return 0, fmt.Errorf("at %q there is %v in %s", location, values[location], body)
	}
	return v, nil
}

func TestKEDAScalesOnJobsThatWorkersCouldHave(t *testing.T) {
	t.Parallel()
	trigger := map[string]string{}
	for _, line := range servertest.DocumentLines(t, "keda") {
		if m := regexp.MustCompile(`^(\w+): "?([^" ]+)`).FindStringSubmatch(line); m != nil {
			trigger[m[1]] = m[2]
		}
	}
	file := filepath.Join(t.TempDir(), "web.yml")
	servertest.WriteAuthFile(t, file, webConfig)
	u, err := url.Parse(trigger["url"])
	servertest.NoError(t, err)
	s, address := servertest.Monitored(t, "--web-config-file", file, "--http-host", u.Hostname())
	if v, err := scaler(t, trigger, address, "wrong"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with a wrong password: %v, %v", v, err)
	}
	if v, err := scaler(t, trigger, address, "secret"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("of no tube: %v, %v", v, err)
	}
	c := s.Dial(0)
	c.Send("use mail", "put 0 0 3600 1", "a", "put 0 0 3600 1", "b", "put 0 3600 3600 1", "c", "watch mail")
	c.Want("USING mail", "INSERTED 1", "INSERTED 2", "INSERTED 3", "WATCHING 2")
	for _, tt := range []struct {
		command, reply string
		want           float64
	}{
		{"set-tube mail rate=", "TUBE_SET", 2},
		{"set-tube mail paused=1", "TUBE_SET", 0},
		{"set-tube mail paused=", "TUBE_SET", 2},
		{"pause-tube mail 3600", "PAUSED", 0},
		{"pause-tube mail 0", "PAUSED", 2},
		{"set-tube mail max-reserved=1", "TUBE_SET", 2},
		{"reserve", "RESERVED 1 1\r\na", 1},
		{"set-tube mail max-reserved=", "TUBE_SET", 2},
		{"reserve", "RESERVED 2 1\r\nb", 2},
		{"delete 1", "DELETED", 1},
		{"delete 2", "DELETED", 0},
	} {
		c.Send(tt.command)
		c.Want(strings.Split(tt.reply, "\r\n")...)
		if v, err := scaler(t, trigger, address, "secret"); err != nil || v != tt.want {
			t.Errorf("after %s: %v, %v; want %v", tt.command, v, err, tt.want)
		}
	}
	trigger["valueLocation"] = "oldest-ready-age"
	if v, err := scaler(t, trigger, address, "secret"); err != nil || v != 0 {
		t.Errorf("the oldest of no ready job is %v, %v", v, err)
	}
}
