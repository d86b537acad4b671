package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"trellis/cmd/internal/client"
	"trellis/reactor"
)

// stockRig is a rig whose server knows no extensions.
func stockRig(t *testing.T) *rig {
	r := newRig(t, writable)
	stock, err := reactor.New(reactor.Config{Engine: r.engine, Now: r.now, Loops: 1, MaxJobSize: rigMaxJob, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stock.Shutdown(context.Background()) })
	r.console.pool.dial = func(ctx context.Context) (*client.Conn, error) {
		nc, err := stock.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return client.New(nc, "stock"), nil
	}
	return r
}

func TestAServerWithoutExtensionsIsShownAsFarAsItCanBe(t *testing.T) {
	r := stockRig(t)
	ready, buried := r.put("a", 1, 0, "one"), r.bury("a", "two")
	r.hold("a", "three")
	wantText(t, r.page("/"), "Ready 1", "Reserved 1", "Buried 1")
	wantText(t, r.page("/tubes"), "1–2 of 2")
	wantText(t, r.page("/tubes/a"), fmt.Sprintf("Job %d", ready), fmt.Sprintf("Job %d", buried), "Not to be seen", "Pause", "Kick")
	wantText(t, r.page("/tubes/a/jobs?state=buried"), "only the next one can be seen", "two")
	wantText(t, r.page("/tubes/a/jobs?state=reserved"), "only the next one can be seen")
	wantText(t, r.page(fmt.Sprintf("/jobs/%d", ready)), "one")
	wantText(t, r.page("/failed"), "the first of each tube", "two")
	wantText(t, r.page("/connections"), "This server does not list its connections.")
	wantText(t, r.page("/server"), "current-jobs-ready")
	wantText(t, r.do("/tubes/a/kick", "count", "1"), "1 job kicked")
	wantText(t, r.do(fmt.Sprintf("/jobs/%d/copy", ready), "to", "b"), "put as job")
	for _, path := range []string{"/tubes/a/flush", "/tubes/a/move", "/tubes/a/delete", "/tubes/a/settings", "/jobs/move", "/server/drain"} {
		form := values("confirmed", "yes", "state", "ready", "to", "b", "count", "1", "rate", "1", "id", fmt.Sprint(ready))
		if a := r.post(path, form); a.StatusCode != http.StatusNotImplemented {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
	if a := r.post("/put", values("to", "b", "pri", "1", "delay", "0", "ttr", "1", "key", "k", "body", "use c")); a.StatusCode != http.StatusNotImplemented {
		t.Errorf("a put with a key: %s", a.Status)
	}
	page := r.page("/tubes/a")
	for _, form := range []string{"/flush", "/move", "/delete", "/settings"} {
		if containsAction(page, "/tubes/a"+form) {
			t.Errorf("the page offers %s", form)
		}
	}
}

func TestAServerThatDoesNotAnswerIsSaidTo(t *testing.T) {
	r := newRig(t, writable)
	r.console.pool.dial = func(context.Context) (*client.Conn, error) {
		return nil, errors.New("connecting to 192.0.2.1:11300: connection refused")
	}
	wantText(t, r.page("/"), "The server does not answer. connecting to 192.0.2.1:11300: connection refused", "In and out")
	wantText(t, r.page("/server"), "The server does not answer.")
	for _, path := range []string{"/tubes", "/tubes/a", "/tubes/a/jobs", "/jobs/1", "/failed", "/connections", "/put", "/api/v1/stats", "/api/v1/tubes"} {
		if a := r.get(path); a.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
	if a := r.post("/tubes/a/pause", values("seconds", "1")); a.StatusCode != http.StatusBadGateway {
		t.Errorf("a change: %s", a.Status)
	}
	wantText(t, r.page("/actions"), "connection refused")
}

func TestAConnectionThatWasClosedMeanwhileIsMadeAnew(t *testing.T) {
	r := newRig(t, nil)
	r.page("/")
	for _, c := range r.console.pool.idle {
		_ = c.Close()
	}
	r.page("/")
}
