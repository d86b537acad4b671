package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"trellis/cmd/internal/client"
)

// script is what must not get into a page as it is.
const script = `<script>alert("x")</script><img src=x onerror=alert(1)>'"` + "`&lt;{{.}}\x00\x1b[31m\u202e\xff"

// hostile is script, again and again, up to 65 KB.
var hostile = strings.Repeat(script, 65_000/len(script))

// harmless makes sure that nothing of script has become markup, and that no control
// character is left.
func harmless(t *testing.T, path, page string) {
	t.Helper()
	lacks(t, path, page, "<script>alert", "<img", "onerror=alert(1)>", "\x00", "\x1b", "\u202e", "\xff")
}

// inert is harmless for what a form has to send back as it came.
func inert(t *testing.T, path, page string) {
	t.Helper()
	lacks(t, path, page, "<script>alert", "<img", "onerror=alert(1)>", "\x00")
}

func lacks(t *testing.T, path, page string, all ...string) {
	t.Helper()
	for _, bad := range all {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("%s has %q: …%.200q", path, bad, page[max(0, i-100):])
		}
	}
}

func TestBodiesAreTextInEveryView(t *testing.T) {
	r := newRig(t, writable)
	r.console.cfg.Local = local{r}
	j, err := json.Marshal(map[string]string{"a": strings.Repeat(`<script>alert("x")</script>`, 100)})
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range []string{hostile, script, string(j), "</pre></textarea>" + script} {
		tube := fmt.Sprintf("t%d", i)
		ids := []uint64{r.put(tube, 1, 0, body), r.put(tube, 1, 99, body), r.bury(tube, body), r.hold(tube, body)}
		for _, id := range ids {
			for _, view := range []string{"", "?view=text", "?view=json", "?view=hex", "?view=" + "%3Cscript%3Ealert"} {
				path := fmt.Sprintf("/jobs/%d%s", id, view)
				harmless(t, path, r.page(path))
			}
			a := r.get(fmt.Sprintf("/jobs/%d/body", id))
			if a.text != body || a.Header.Get("Content-Type") != "application/octet-stream" ||
				a.Header.Get("Content-Disposition") != fmt.Sprintf(`attachment; filename="job-%d"`, id) ||
				!strings.Contains(a.Header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("the download of job %d: %v, %d bytes", id, a.Header, len(a.text))
			}
		}
		for _, path := range []string{"/", "/tubes", "/tubes/" + tube, "/tubes/" + tube + "/jobs", "/tubes/" + tube + "/jobs?state=buried", "/tubes/" + tube + "/jobs?q=alert", "/failed", "/connections"} {
			harmless(t, path, r.page(path))
		}
	}
}

func TestWhatARequestHasInItIsTextToo(t *testing.T) {
	r := newRig(t, writable)
	q := values("q", script, "state", script, "sort", script, "after", script, "range", script, "view", script, "done", script, "offset", script, "tube", script).Encode()
	for _, path := range []string{"/", "/tubes", "/tubes/default", "/tubes/default/jobs", "/jobs/1", "/failed", "/connections", "/put", "/server", "/actions", "/nosuch", "/find", "/api/v1/tubes", "/api/v1/tubes/default/jobs", "/api/v1/nosuch"} {
		harmless(t, path, r.get(path+"?"+q).text)
		harmless(t, path, r.get(path+"/%3Cscript%3Ealert(1)%3C%2Fscript%3E").text)
	}
	inert(t, "a search", r.page("/tubes/default/jobs?"+values("q", script).Encode()))
	harmless(t, "a filter", r.page("/tubes?"+values("q", "<script>alert(1)</script>").Encode()))
	for _, ch := range changes {
		form := values("state", script, "to", script, "count", script, "id", script, "seconds", script, "pri", script, "delay", script, "ttr", script, "key", script, "body", script, "rate", script, "view", script)
		inert(t, ch.path, r.post(fill.Replace(ch.path), form).text)
	}
	r.put("a", 1, 0, "x")
	inert(t, "a confirmation", r.post("/tubes/a/flush", values("view", script, script, script)).text)
	user := func(req *http.Request) {
		req.SetBasicAuth(script, "x")
		req.RemoteAddr = "[::1%<script>alert(1)</script>]:1"
	}
	r.send(http.MethodPost, "/tubes/a/pause", "application/x-www-form-urlencoded", "seconds=1", user)
	harmless(t, "/actions", r.page("/actions"))
	lacks(t, "the log", r.log.String(), "\x00", "\x1b", "\u202e", "\xff")
}

// answers are what a server says to each command that has a name in the place of every text.
func answers(word, name string) string {
	ok := func(yaml string) string { return fmt.Sprintf("OK %d\r\n%s\r\n", len(yaml), yaml) }
	fields := func(indent string) string {
		var b strings.Builder
		for i, key := range []string{
			"name", "tube", "state", "version", "hostname", "id", "addr", "os", "current-jobs-ready", "current-jobs-buried", "current-jobs-reserved",
			"current-jobs-delayed", "total-jobs", "pause-time-left", "age", "pri", "draining", "watching", "reserved-jobs", "dead-tube", "max-attempts", "waiting", "commands", "reserved-count", "watching-count",
			"rate", "dead", "limited-by", "limited-for", "pending", "buried", "waiting-jobs",
		} {
			value := `"` + name + `"`
			switch {
			case key == "id":
				value = "7"
			case strings.HasPrefix(key, "current-"), key == "reserved-count", key == "watching-count":
				value = "18446744073709551615"
			case key == "watching", key == "reserved-jobs":
				value = "[" + name + ", 7]"
			}
			lead := indent
			if indent != "" && i == 0 {
				lead = "- "
			}
			fmt.Fprintf(&b, "%s%s: %s\n", lead, key, value)
		}
		return b.String()
	}
	switch word {
	case "capabilities":
		return ok("---\nversion: \"" + name + "\"\nextensions:\n- list-jobs\n- peek-tube\n- list-connections\n- stats-conn\n- list-dlq\n- flush-tube\n- move-job\n- idp\n- set-tube\n- list-settings\n- stats-tube-x\n- stats-group\n")
	case "list-tubes":
		return ok("---\n- " + name + "\n- default\n- <script>alert(1)</script>\n- ..\n")
	case "stats", "stats-tube", "stats-tube-x", "stats-group", "stats-job", "stats-conn":
		return ok("---\n" + fields(""))
	case "list-jobs", "list-connections", "list-dlq", "list-settings":
		return ok("---\n" + fields("  ") + fields("  "))
	case "peek", "peek-tube":
		return fmt.Sprintf("FOUND 7 %d\r\n%s\r\n", len(name), name)
	}
	return name[:min(len(name), 100)] + "\r\n"
}

// serveNamed answers on a pipe.
func serveNamed(nc net.Conn, name string) {
	defer nc.Close()
	in := bufio.NewScanner(nc)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if len(words) == 0 {
			continue
		}
		if _, err := nc.Write([]byte(answers(words[0], name))); err != nil {
			return
		}
	}
}

// namedRig has a console of a server that has a name in the place of every text.
func namedRig(t *testing.T, name string) *rig {
	r := newRig(t, writable)
	c := New(Config{
		Server: name, Write: true, Who: nobodyAsked, Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Dial: func(context.Context) (*client.Conn, error) {
			here, there := net.Pipe()
			go serveNamed(there, name)
			return client.New(here, name), nil
		},
	})
	t.Cleanup(c.pool.close)
	r.console = c
	return r
}

var (
	attributes = regexp.MustCompile(`="[^"]*"`)
	leads      = regexp.MustCompile(` (href|action|src)="([^"]*)"`)
)

// skeleton is a page's markup, without its texts and the values of attributes.
func skeleton(page string) []string {
	return tags.FindAllString(attributes.ReplaceAllString(page, ""), -1)
}

// A server's names make no markup, lead nowhere, and control nothing, wherever they stand.
func TestANameOfAHostileServerIsText(t *testing.T) {
	paths := []string{
		"/", "/tubes", "/tubes?sort=name", "/tubes/default", "/tubes/default/jobs", "/tubes/default/jobs?state=reserved", "/tubes/default/jobs?q=x", "/jobs/7", "/jobs/7?view=hex", "/groups/g",
		"/failed", "/connections", "/put?tube=x", "/server", "/actions", "/nosuch",
	}
	pages := func(name string) (all map[string]string) {
		r := namedRig(t, name)
		all = make(map[string]string)
		for _, ch := range changes {
			all["POST "+ch.path] = r.send(http.MethodPost, fill.Replace(ch.path), "application/x-www-form-urlencoded", writes[ch.path], nil).text
		}
		for _, path := range paths {
			all[path] = r.get(path).text
		}
		return all
	}
	known := make(map[string]bool)
	for _, tame := range []string{"x is no name of a tube", "x/is.one"} {
		for _, page := range pages(tame) {
			for _, tag := range skeleton(page) {
				known[tag] = true
			}
		}
	}
	for _, name := range []string{
		`<b>"onmouseover='alert(1)' x=`, `</title></textarea></script><script>alert(1)</script>`, `javascript:alert(1)//`, `//evil.example/`, `"><svg onload=alert(1)>`,
		"' onfocus=alert(1) autofocus '", "`${alert(1)}`", `{{.Server}}<!--`, `]]>--><x>`, `&lt;script&gt;&#60;x&#62;&amp`, `<` + strings.Repeat("x", 5000),
		"\x1b[2J\x1b]0;x\a\u009b31m\x7f\b", "a\u202eb\u2066c\u200fd\ufeffe\u2028f\u00adg", "\xff\xfe\xc0\xaf<x>", "\U000e0001\ufff9\U0010ffff", "a\vb\fc\r",
	} {
		for path, page := range pages(name) {
			for _, tag := range skeleton(page) {
				if !known[tag] {
					t.Errorf("%s: %.40q has made %s", path, name, tag)
				}
			}
			for _, lead := range leads.FindAllStringSubmatch(page, -1) {
				to := html.UnescapeString(lead[2])
				if to != "" && !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "#") && !strings.HasPrefix(to, "?") || strings.HasPrefix(to, "//") {
					t.Errorf("%s: %.40q leads to %s", path, name, to)
				}
			}
			text := html.UnescapeString(page)
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && r != '\u00a0' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s: %.40q is %.40q", path, name, text[max(0, i-20):])
			}
			if !utf8.ValidString(page) {
				t.Errorf("%s: %.40q is no text", path, name)
			}
		}
	}
}

func TestAHostileServerIsShownAsText(t *testing.T) {
	r := namedRig(t, strings.NewReplacer("\x00", "", "\n", "").Replace(hostile))
	for _, path := range []string{
		"/", "/tubes", "/tubes/default", "/tubes/default/jobs", "/tubes/default/jobs?state=reserved", "/tubes/default/jobs?q=alert", "/jobs/7", "/jobs/7?view=hex", "/groups/g",
		"/failed", "/connections", "/put", "/server", "/actions",
	} {
		a := r.get(path)
		if a.StatusCode != http.StatusOK && a.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s", path, a.Status)
		}
		if a.StatusCode == http.StatusBadGateway {
			t.Logf("%s: %s", path, plain(a.text))
		}
		harmless(t, path, a.text)
	}
	for _, e := range apiReads {
		a := r.get(apiRoot + fill.Replace(e.path))
		if a.Header.Get("Content-Type") != "application/json" || !json.Valid([]byte(a.text)) || bytes.Contains([]byte(a.text), []byte("<script")) {
			t.Errorf("%s: %.300s", e.path, a.text)
		}
	}
	for _, ch := range changes {
		a := r.send(http.MethodPost, fill.Replace(ch.path), "application/x-www-form-urlencoded", writes[ch.path], nil)
		if a.StatusCode == http.StatusSeeOther {
			t.Errorf("%s is said to be done", ch.path)
		}
		harmless(t, ch.path, a.text)
	}
}

func TestWhatNoTubeIsCalledIsNotLinked(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a/b": true, ".": true, "..": true, "$_();+-.": true, strings.Repeat("n", 200): true, "0": true,
		"": false, "-a": false, "a b": false, "a~": false, "ä": false, "a\n": false, strings.Repeat("n", 201): false, "<script>": false, "a%2F": false,
	} {
		if (client.CheckTube(name) == nil) != ok {
			t.Errorf("%q: %t", name, !ok)
		}
		if back, valid := tubeFromElement(strings.ReplaceAll(tubeElement(name), "%2F", "/")); ok && (back != name || !valid) {
			if !strings.Contains(tubeElement(name), "%") {
				t.Errorf("%q comes back as %q", name, back)
			}
		}
	}
	r := newRig(t, nil)
	for _, name := range []string{".", "..", "a/../b", "a//b", "$_();+-."} {
		r.put(name, 1, 0, "x")
		wantText(t, r.page("/tubes/"+tubeElement(name)), "Next jobs", name)
	}
}

func TestJSONThatIsNestedDeeplyTakesLittle(t *testing.T) {
	deep := []byte(strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000))
	if s := show(deep, ""); s.View != "text" || s.JSON || len(s.Text) != len(deep) {
		t.Errorf("shown as %s in %d bytes", s.View, len(s.Text))
	}
	if s := show([]byte(`{"a[[[[":"\"]]","b":[1,{"c":2}]}`), ""); s.View != "json" || depth([]byte(`{"a[[":[1,{"\\":"["}]}`)) != 3 {
		t.Errorf("shown as %s", s.View)
	}
}

func TestALargeBodyIsCutAndCanBeDownloaded(t *testing.T) {
	r := newRig(t, nil)
	id := r.put("a", 1, 0, strings.Repeat("0123456789", 50_000))
	page := r.page(fmt.Sprintf("/jobs/%d", id))
	wantText(t, page, "Cut after 65,536 bytes.", "488 KiB")
	if len(page) > 2*shownBytes {
		t.Errorf("the page has %d bytes", len(page))
	}
	wantText(t, r.page(fmt.Sprintf("/jobs/%d?view=hex", id)), "Cut after 16,384 bytes.")
	if a := r.get(fmt.Sprintf("/jobs/%d/body", id)); len(a.text) != 500_000 {
		t.Errorf("%d bytes were downloaded", len(a.text))
	}
}

func TestABodyThatIsNotFetchedLeavesTheRestOfItsPage(t *testing.T) {
	large := strings.Repeat("n", maxBody+1)
	for name, r := range map[string]*rig{"with extensions": newRig(t, nil), "stock": stockRig(t)} {
		t.Run(name, func(t *testing.T) {
			r.put("a", 1, 0, large)
			delayed := r.put("a", 1, 1000, "needle")
			r.bury("a", large)
			other := r.bury("b", "small")
			wantText(t, r.page("/tubes/a"), "Too large to be shown here", fmt.Sprintf("Job %d", delayed))
			failed := r.page("/failed")
			for begun := time.Now(); !strings.Contains(plain(failed), "small") && time.Since(begun) < time.Minute; failed = r.page("/failed") {
				continue // it begins no further list after failedTime
			}
			wantText(t, failed, fmt.Sprint(other), "small")
			wantText(t, r.page("/tubes"), "1–3 of 3") // on the same connections
		})
	}
}

func TestASearchGoesOnBehindABodyThatIsNotFetched(t *testing.T) {
	r := newRig(t, nil)
	r.put("a", 1, 0, strings.Repeat("n", maxBody+1))
	found := r.put("a", 2, 0, "needle")
	r.put("a", 3, 0, strings.Repeat("n", maxBody+1))
	page := r.page("/tubes/a/jobs?q=needle")
	wantText(t, page, fmt.Sprint(found), "needle")
	if strings.Contains(page, "Search on") {
		t.Error("the search has not come to the end")
	}
}
