package client

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestStatisticsOfBothServersAreRead(t *testing.T) {
	for _, tt := range []struct {
		name, in, want string
		parse          func([]byte) (any, error)
	}{
		{"a tube of beanstalkd 1.12", "---\nname: 17\ncurrent-jobs-ready: 3\n", `{"name":"17","current-jobs-ready":3}`, fields},
		{"a tube of Trellis", "---\nname: \"17\"\ncurrent-jobs-ready: 3\n", `{"name":"17","current-jobs-ready":3}`, fields},
		{
			"a server", "---\nversion: 1.12\nrusage-utime: 0.010000\ndraining: false\nid: 0123456789012345\nos: #1 SMP \"x\"\nhostname: \n",
			`{"version":"1.12","rusage-utime":0.010000,"draining":false,"id":"0123456789012345","os":"#1 SMP \"x\"","hostname":""}`, stats,
		},
		{
			"a connection", "---\nid: 7\naddr: \"[::1]:5\"\nwatching: [default, 17]\nreserved-jobs: [2, 3]\nempty: []\n",
			`{"id":7,"addr":"[::1]:5","watching":["default","17"],"reserved-jobs":[2,3],"empty":[]}`, fields,
		},
		{"not quite numbers", "---\na: 007\nb: 1e\nc: +1\nd: 0x1\ne: -1\nf: nan\n", `{"a":"007","b":"1e","c":"+1","d":"0x1","e":-1,"f":"nan"}`, fields},
		{"names", "---\n- default\n- \"17\"\n", `["default","17"]`, names},
		{"no names", "---\n", `null`, names},
		{"jobs", "---\n- id: 4\n  pri: 0\n- id: 5\n  pri: 1\n", `[{"id":4,"pri":0},{"id":5,"pri":1}]`, entries},
	} {
		v, err := tt.parse([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got, err := json.Marshal(v); err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n%s\n%s", tt.name, err, got, tt.want)
		}
	}
}

func fields(b []byte) (any, error)  { return parseFields(b) }
func stats(b []byte) (any, error)   { return parseStats(b) }
func names(b []byte) (any, error)   { return parseNames(b) }
func entries(b []byte) (any, error) { return parseEntries(b) }

func TestWhatAreNoStatisticsIsAnError(t *testing.T) {
	for _, in := range []string{"nothing", ": 1\n", "a b: 1\n", "- x\n", "a:1\n"} {
		if f, err := parseFields([]byte(in)); err == nil {
			t.Errorf("%q: %v", in, f)
		}
	}
	for _, in := range []string{"  id: 1\n", "- id\n", "id: 1\n", "-\n"} {
		if f, err := parseEntries([]byte(in)); err == nil {
			t.Errorf("%q: %v", in, f)
		}
	}
	if f, err := parseNames([]byte("name: x\n")); err == nil {
		t.Error(f)
	}
}

// FuzzStatistics reads anything as any kind of statistics, and writes it as JSON, which has
// to be valid.
func FuzzStatistics(f *testing.F) {
	f.Add([]byte("---\nname: \"17\"\ncurrent-jobs-ready: 3\nwatching: [default, 17]\n"))
	f.Add([]byte("---\n- id: 4\n  pri: 0\n- id: 5\n  time-left: 1\n"))
	f.Add([]byte("---\nversion: \"1\"\nextensions:\n- drain\n- idp\n"))
	f.Add([]byte("- a\n- \xff\n"))
	f.Add([]byte("a: 4\r\r\nb: 4 \n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (any, error){fields, stats, names, entries} {
			v, err := parse(b)
			if err != nil {
				continue
			}
			text, err := json.Marshal(v)
			if err != nil || !json.Valid(text) {
				t.Fatalf("%q: %v, %s", b, err, text)
			}
		}
		_, _ = parseCapabilities(b)
		// What a dictionary has is there again when it is written in the same way.
		f, err := parseFields(b)
		if err != nil || strings.Contains(string(b), "[") {
			return
		}
		var again strings.Builder
		for _, field := range f {
			again.WriteString(field.Key + ": ")
			if field.Value.Kind == Text {
				again.WriteString(`"` + field.Value.Text + `"`)
			} else {
				again.WriteString(field.Value.Text)
			}
			again.WriteString("\n")
		}
		if g, err := parseFields([]byte(again.String())); err != nil || !reflect.DeepEqual(f, g) {
			t.Fatalf("%q: %v\n%v\n%v", b, err, f, g)
		}
	})
}
