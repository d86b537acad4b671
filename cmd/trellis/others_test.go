package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"trellis/cmd/internal/client"
)

// inTurn is a stock server that answers each line with the next of its replies, and with the last one again and again.
// A reply {OK}BODY gets its size and its end.
func inTurn(t *testing.T, replies map[string][]string) (addr string) {
	return serveEach(t, listen(t), func(c net.Conn) {
		given := make(map[string]int)
		for in := bufio.NewScanner(c); in.Scan(); {
			line, reply := in.Text(), "UNKNOWN_COMMAND"
			if all := replies[line]; len(all) > 0 {
				reply = all[min(given[line], len(all)-1)]
				given[line]++
			}
			if body, ok := strings.CutPrefix(reply, "{OK}"); ok {
				reply = fmt.Sprintf("OK %d\r\n%s", len(body), body)
			}
			if _, err := io.WriteString(c, reply+"\r\n"); err != nil {
				return
			}
		}
	})
}

// stockReplies are what inTurn needs for a tube t whose statistics are these, and others.
func stockReplies(others map[string][]string, stats ...string) map[string][]string {
	all := map[string][]string{"list-tube-used": {"USING default"}, "use t": {"USING t"}, "use default": {"USING default"}}
	all["stats-tube t"] = append(all["stats-tube t"], stats...)
	maps.Copy(all, others)
	return all
}

func TestJobsOfAStockServerThatOthersTakeDoNotEndTheRest(t *testing.T) {
	const stats = "{OK}---\ncurrent-jobs-ready: 2\ncurrent-jobs-buried: 3\n"
	first := func(ids ...int) (replies []string) {
		for _, id := range ids {
			replies = append(replies, fmt.Sprintf("FOUND %d 1\r\na", id))
		}
		return append(replies, "NOT_FOUND")
	}
	for _, tt := range []struct {
		name, args string
		replies    map[string][]string
		status     int
		want       string
	}{
		{"the first job comes back", "delete --tube t --state buried --count all", map[string][]string{
			"peek-buried": first(5, 5, 6, 7), "delete 5": {"NOT_FOUND", "DELETED"}, "delete 6": {"DELETED"}, "delete 7": {"DELETED"},
		}, 0, "3 buried jobs of tube t deleted\n"},
		{"the first job has gone", "bury --tube t --state ready --count 2", map[string][]string{
			"peek-ready": first(5, 6, 7), "stats-job 5": {"NOT_FOUND"},
			"stats-job 6": {"{OK}---\nid: 6\npri: 10\n"}, "reserve-job 6": {"RESERVED 6 1\r\na"}, "bury 6 10": {"BURIED"},
			"stats-job 7": {"{OK}---\nid: 7\npri: 11\n"}, "reserve-job 7": {"RESERVED 7 1\r\na"}, "bury 7 11": {"BURIED"},
		}, 0, "2 ready jobs of tube t buried\n"},
		{"all have gone", "delete --tube t --state buried --count all", map[string][]string{
			"peek-buried": first(5, 6), "delete 5": {"DELETED"}, "delete 6": {"NOT_FOUND"},
		}, 0, "1 buried job of tube t deleted\n"},
		{"they are always faster", "delete --tube t --state buried --count all", map[string][]string{
			"peek-buried": {"FOUND 5 1\r\na"}, "delete 5": {"DELETED", "NOT_FOUND"},
		}, exitNothing, "others have been faster with the buried jobs of tube \"t\", 1000 times in a row (at least 1 buried job deleted before)\n"},
	} {
		addr := inTurn(t, stockReplies(tt.replies, stats))
		out, errs, status := trellis(t, append(strings.Fields(tt.args), "-a", addr)...)
		if status != tt.status || !strings.HasSuffix(out+errs, tt.want) {
			t.Errorf("%s: status %d\n%s%s", tt.name, status, out, errs)
		}
	}
}

func TestClearFindsJobsThatChangeTheirStatesMeanwhile(t *testing.T) {
	const both, ready = "{OK}---\ncurrent-jobs-ready: 1\ncurrent-jobs-delayed: 1\n", "{OK}---\ncurrent-jobs-ready: 1\n"
	addr := inTurn(t, stockReplies(map[string][]string{
		"peek-ready":   {"FOUND 1 1\r\na", "NOT_FOUND", "FOUND 2 1\r\na", "NOT_FOUND"},
		"peek-delayed": {"NOT_FOUND"}, // it has become ready
		"delete 1":     {"DELETED"}, "delete 2": {"DELETED"},
	}, both, both, both, both, ready))
	out, errs, status := trellis(t, "clear", "t", "--yes", "-a", addr)
	if status != 0 || out != "2 jobs of tube t deleted\n" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

func TestKickMakesNoJobReadyThatIsInAnotherStateThanTheOneGiven(t *testing.T) {
	// The protocol's kick takes delayed jobs when somebody else has kicked the last buried one.
	addr := inTurn(t, stockReplies(map[string][]string{
		"peek-buried": {"FOUND 5 1\r\na", "NOT_FOUND"}, "kick-job 5": {"KICKED"}, "kick 2": {"KICKED 2"},
	}, "{OK}---\ncurrent-jobs-delayed: 3\ncurrent-jobs-buried: 2\n"))
	out, errs, status := trellis(t, "kick", "--tube", "t", "--state", "buried", "--count", "2", "-a", addr)
	if status != 0 || out != "1 buried job of tube t kicked\n" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

func TestKickOfDelayedJobsKicksNoneThatIsBuriedMeanwhile(t *testing.T) {
	// The statistics are those of before: kick would take the job that was buried since.
	addr := inTurn(t, stockReplies(map[string][]string{
		"peek-delayed": {"FOUND 5 1\r\na", "NOT_FOUND"}, "kick-job 5": {"KICKED"}, "kick 2": {"KICKED 2"},
	}, "{OK}---\ncurrent-jobs-delayed: 2\ncurrent-jobs-buried: 0\n"))
	out, errs, status := trellis(t, "kick", "--tube", "t", "--state", "delayed", "--count", "2", "-a", addr)
	if status != 0 || out != "1 delayed job of tube t kicked\n" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

func TestATubeThatGoesWhileItIsListedIsShownUpToThere(t *testing.T) {
	addr := fake(t, map[string]string{
		"capabilities": everyExtension, "stats-tube t": "{OK}---\nname: t\n",
		"list-jobs t ready 100": "{OK}---\n- id: 1\n  pri: 0\n", "list-jobs t reserved 99": "NOT_FOUND\r\n", "list-jobs t reserved 100": "NOT_FOUND\r\n",
		"list-jobs t ready 10000": "{OK}---\n- id: 1\n  pri: 0\n", "list-jobs t reserved 10000": "NOT_FOUND\r\n",
		"stats-job 1": "{OK}---\nid: 1\n", "peek 1": "FOUND 1 1\r\na\r\n",
	})
	for args, want := range map[string]string{
		"jobs t -o ndjson": `{"id":1,"state":"ready","pri":0}` + "\n",
		"export t":         `{"id":1,"pri":0,"delay":0,"ttr":0,"body":"a"}` + "\n",
	} {
		if out, errs, status := trellis(t, append(strings.Fields(args), "-a", addr)...); status != 0 || out != want || errs != "" {
			t.Errorf("%s: status %d\n%s%s", args, status, out, errs)
		}
	}
}

// TestCopiesInTheSameTubeAreNotCopiedInPlaceOfJobs has a tube with more jobs than a page. The copies of the first page would come
// before the jobs of the second one, as those have a worse priority.
func TestCopiesInTheSameTubeAreNotCopiedInPlaceOfJobs(t *testing.T) {
	const urgent, others = client.MaxListJobs, 2
	var mu sync.Mutex
	peeked, copies := make(map[int]int), 0
	addr := serveEach(t, listen(t), func(c net.Conn) {
		for in := bufio.NewScanner(c); in.Scan(); {
			mu.Lock()
			reply, id, limit := "NOT_FOUND", 0, 0
			body := func(text string) string { return fmt.Sprintf("OK %d\r\n%s", len(text), text) }
			switch line := in.Text(); {
			case line == "capabilities":
				reply = body("---\nmax-job-size: 65535\nextensions:\n- list-jobs\n")
			case line == "use t":
				reply = "USING t"
			case line == "stats-tube t":
				reply = body(fmt.Sprintf("---\nname: t\ncurrent-jobs-ready: %d\n", urgent+others))
			case strings.HasPrefix(line, "stats-job "):
				reply = body("---\npri: 0\nttr: 60\nstate: ready\n")
			case strings.HasPrefix(line, "put "):
				in.Scan()
				copies++
				reply = fmt.Sprint("INSERTED ", urgent+others+copies)
			case scans(line, "peek %d", &id):
				if peeked[id]++; id == 1 { // the others have gone, which takes less time
					reply = "FOUND 1 1\r\na"
				}
			case scans(line, "list-jobs t ready %d %d", &limit, &id), scans(line, "list-jobs t ready %d", &limit):
				var all []int
				for i := range urgent + copies + others {
					switch {
					case i < urgent: // the first ones
						all = append(all, i+1)
					case i < urgent+copies:
						all = append(all, i+1+others)
					default:
						all = append(all, i+1-copies)
					}
				}
				list := "---\n"
				for _, id := range all[slices.Index(all, id)+1:] {
					if limit--; limit >= 0 {
						list += fmt.Sprintf("- id: %d\n", id)
					}
				}
				reply = body(list)
			}
			mu.Unlock()
			if _, err := io.WriteString(c, reply+"\r\n"); err != nil {
				return
			}
		}
	})
	out, errs, status := trellis(t, "copy", "--tube", "t", "--state", "ready", "--count", "all", "--to", "t", "-a", addr)
	if status != 0 || out != "1 ready job of tube t copied\n" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	mu.Lock()
	defer mu.Unlock()
	for id := range urgent + others {
		if peeked[id+1] != 1 {
			t.Fatalf("job %d was copied %d times", id+1, peeked[id+1])
		}
	}
	if len(peeked) != urgent+others {
		t.Errorf("%d jobs were copied, where there are %d", len(peeked), urgent+others)
	}
}

// scans reads a line that has this format and nothing more.
func scans(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format+"\n", into...)
	return err == nil && n == len(into)
}
