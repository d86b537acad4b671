package faults

import (
	"strings"
	"testing"
)

func TestRepliesOfAQueueThatGoesOnAreAccepted(t *testing.T) {
	for what, text := range map[string]string{
		"a job's life": `
			1 put 7 10-20 INSERTED
			2 reserve 7 5-30 RESERVED wait=5s
			2 touch 7 31-32 TOUCHED
			2 release 7 33-34 RELEASED
			1 reserve 7 35-36 RESERVED
			1 bury 7 37-38 BURIED
			1 kick-job 7 39-40 KICKED
			2 reserve 7 41-42 RESERVED
			2 delete 7 50-51 DELETED`,
		"a time to run that ends": `
			1 put 7 10-20 INSERTED ttr=2
			2 reserve 7 30-31 RESERVED
			3 reserve 7 40-2035 RESERVED wait=5s
			2 delete 7 2040-2041 NOT_FOUND
			3 delete 7 2050-2051 DELETED`,
		"a touch that came before the end of the time to run": `
			1 put 7 10-20 INSERTED ttr=2
			2 reserve 7 30-31 RESERVED
			2 touch 7 1000-1001 TOUCHED
			3 reserve 0 40-2540 TIMED_OUT wait=2s
			2 delete 7 2600-2601 DELETED`,
		"a session that has ended": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			2 end 0 30-open
			3 reserve 7 32-33 RESERVED
			3 delete 7 50-51 DELETED`,
		"a session that has ended before it has noticed": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			2 delete 7 500-open
			2 end 0 30-open
			3 reserve 7 32-33 RESERVED
			3 delete 7 50-51 DELETED`,
		"a session that has ended before its reply has come": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-40 RESERVED
			2 end 0 30-open
			3 reserve 7 34-35 RESERVED
			3 delete 7 50-51 DELETED`,
		"a delete without a reply that was executed": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			2 delete 7 32-open
			2 end 0 30-open`,
		"a put without a reply that was executed": `
			1 put 7 10-open
			2 reserve 7 30-31 RESERVED
			2 delete 7 32-33 DELETED`,
		"a put without a reply that was not": `
			1 put 7 10-open`,
		"a wait that ends with a job on its way": `
			2 reserve 0 30-2040 TIMED_OUT wait=2s
			1 put 7 2020-2035 INSERTED
			2 reserve 7 2050-2051 RESERVED
			2 delete 7 2052-2053 DELETED`,
		"a job that was reserved before its put was answered": `
			1 put 7 10-40 INSERTED
			2 reserve 7 30-31 RESERVED
			3 reserve 0 50-51 TIMED_OUT
			2 delete 7 60-61 DELETED`,
		"a wait whose job was taken by a session that has ended": `
			1 put 7 10-20 INSERTED
			3 reserve 0 5-open wait=5s
			3 end 0 1-open
			2 reserve 0 30-2040 TIMED_OUT wait=2s
			2 reserve 7 9000-9001 RESERVED
			2 delete 7 9002-9003 DELETED`,
		"a wait that ends for a deadline": `
			1 put 7 10-20 INSERTED ttr=2
			2 reserve 7 30-31 RESERVED
			2 reserve 0 40-1040 DEADLINE_SOON wait=5s
			2 delete 7 1050-1051 DELETED`,
		"ids of puts at once": `
			1 put 8 10-20 INSERTED
			2 put 7 15-25 INSERTED
			1 delete 8 30-31 DELETED
			1 delete 7 32-33 DELETED`,
	} {
		if err := checkCrew(milliseconds(script(t, text))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRepliesOfAQueueThatDoesNotGoOnAreRefused(t *testing.T) {
	for _, x := range []struct{ why, text string }{
		{"it was lost", `
			1 put 7 10-20 INSERTED
			1 delete 7 30-31 NOT_FOUND`},
		{"it was lost", `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			2 release 7 40-open
			2 end 0 30-open
			1 delete 7 50-51 NOT_FOUND`},
		{"deleted twice", `
			1 put 7 10-20 INSERTED
			1 delete 7 30-31 DELETED
			2 delete 7 30-31 DELETED`},
		{"has come back", `
			1 put 7 10-20 INSERTED
			1 delete 7 30-31 DELETED
			2 reserve 7 40-41 RESERVED`},
		{"two hold it", `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			3 reserve 7 29-40 RESERVED
			3 put 9 45-46 INSERTED
			3 end 0 45-open
			2 delete 7 50-51 DELETED
			1 delete 9 60-61 DELETED`},
		{"another one has this reply", `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			3 release 7 35-36 RELEASED
			2 delete 7 50-51 DELETED`},
		{"another one has this reply", `
			1 put 7 10-20 INSERTED ttr=2
			2 reserve 7 30-31 RESERVED
			2 touch 7 1000-1001 TOUCHED
			3 reserve 7 40-2200 RESERVED wait=5s
			2 put 9 2900-2901 INSERTED
			2 end 0 2900-open
			3 delete 7 3100-3101 DELETED
			1 delete 9 3200-3201 DELETED`},
		{"not found for its holder", `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			2 delete 7 40-41 NOT_FOUND
			1 delete 7 50-51 DELETED`},
		{"its holder got it once more", `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			2 reserve 7 40-41 RESERVED
			2 delete 7 50-51 DELETED`},
		{"it has waited for", `
			2 reserve 0 30-1900 TIMED_OUT wait=2s`},
		{"job 7 was ready", `
			1 put 7 10-20 INSERTED
			2 reserve 0 30-2040 TIMED_OUT wait=2s
			2 reserve 7 2050-2051 RESERVED
			2 delete 7 2052-2053 DELETED`},
		{"job 7 was ready", `
			2 reserve 0 5-2040 TIMED_OUT wait=2s
			1 put 7 10-20 INSERTED
			3 reserve 7 30-31 RESERVED
			3 release 7 40-41 RELEASED
			2 reserve 7 2050-2051 RESERVED
			2 delete 7 2052-2053 DELETED`},
		{"time ends soon", `
			1 put 7 10-20 INSERTED ttr=2
			2 reserve 7 30-31 RESERVED
			2 touch 7 500-501 TOUCHED
			2 reserve 0 540-1040 DEADLINE_SOON wait=5s
			2 delete 7 1050-1051 DELETED`},
		{"ids go back", `
			1 put 8 10-20 INSERTED
			2 put 7 21-25 INSERTED
			1 delete 8 30-31 DELETED
			1 delete 7 32-33 DELETED`},
		{"one put has made two jobs", `
			1 put 7 10-20 INSERTED
			2 reserve 8 30-31 RESERVED body=1
			2 delete 8 32-33 DELETED
			1 delete 7 32-33 DELETED`},
	} {
		h := milliseconds(script(t, x.text))
		for i := range h {
			if h[i].Body == "1" {
				h[i].Body = bodyOf(1, 0)
			}
		}
		if err := checkCrew(h); err == nil || !strings.Contains(err.Error(), x.why) {
			t.Errorf("%s: %v", x.why, err)
		}
	}
}
