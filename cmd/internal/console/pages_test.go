package console

import (
	"fmt"
	"testing"

	"trellis/cmd/internal/client"
)

func TestEveryPageIsRendered(t *testing.T) {
	for _, write := range []bool{false, true} {
		r := newRig(t, func(c *Config) { c.Write = write })
		r.console.cfg.Local = local{r}
		ready := r.put("mail/out", 10, 0, `{"to":"ann@example.org","n":[1,2]}`)
		r.put("mail/out", 10, 600, "later")
		buried := r.bury("mail/out", "failed")
		held := r.hold("mail/out", "held")
		tube := "/tubes/mail%2Fout"
		wantText(t, r.page("/"), "Overview", "Ready 1", "Reserved 1", "Delayed 1", "Buried 1", "mail/out", "1 buried job in 1 tube")
		wantText(t, r.page("/?range=6h"), "6 h ago")
		wantText(t, r.page("/tubes"), "mail/out", "default", "1–2 of 2")
		wantText(t, r.page("/tubes?q=MAIL&sort=name&reverse=1"), "1–1 of 1 that have “MAIL” in their names")
		wantText(t, r.page(tube), "mail/out", "Next jobs", fmt.Sprintf("Job %d", ready), fmt.Sprintf("Job %d", buried), fmt.Sprintf("Job %d", held))
		for _, s := range client.States {
			wantText(t, r.page(tube+"/jobs?state="+string(s)), "mail/out", "order in which they would be taken", "ready 1", "buried 1")
		}
		wantText(t, r.page(tube+"/jobs?q=ann%40example"), "1 hit in 1 of 1 bodies")
		wantText(t, r.page(tube+"/jobs?q=nobody"), "0 hits in 1 of 1 bodies")
		wantText(t, r.page(fmt.Sprintf("/jobs/%d", ready)), "Job 1", `"to": "ann@example.org"`, "ready")
		wantText(t, r.page(fmt.Sprintf("/jobs/%d?view=hex", ready)), "7b 22 74 6f")
		wantText(t, r.page(fmt.Sprintf("/jobs/%d", held)), "reserved")
		wantText(t, r.page("/failed"), "1 buried job in 1 tube", "mail/out", "failed")
		wantText(t, r.page("/connections"), "1 producer, 1 worker, of which 0 waiting for a job")
		wantText(t, r.page("/put?tube=a.b"), "Put a job")
		wantText(t, r.page("/server"), "Settings", "current-jobs-ready", "Largest body 64 KiB")
		wantText(t, r.page("/actions"), "Actions")
	}
}
