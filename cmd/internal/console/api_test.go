package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// wanted is the part of JSON Schema that the description uses.
type wanted struct {
	Ref        string             `json:"$ref"`
	Type       string             `json:"type"`
	Properties map[string]*wanted `json:"properties"`
	Required   []string           `json:"required"`
	Additional *bool              `json:"additionalProperties"`
	Items      *wanted            `json:"items"`
	Enum       []string           `json:"enum"`
}

type content map[string]struct{ Schema *wanted }

type operation struct {
	OperationID string `json:"operationId"`
	Parameters  []struct {
		Name, In string
		Schema   *wanted
	}
	RequestBody *struct{ Content content } `json:"requestBody"`
	Responses   map[string]struct{ Content content }
}

type description struct {
	Paths      map[string]map[string]*operation
	Components struct{ Schemas map[string]*wanted }
}

func readDescription(t *testing.T) *description {
	t.Helper()
	d := new(description)
	text, err := describe()
	if err == nil {
		err = json.Unmarshal(text, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// check tells how a value differs from a schema.
func (d *description) check(at string, s *wanted, v any) (problems []string) {
	if s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		if s = d.Components.Schemas[name]; s == nil {
			return []string{"there is no schema " + name}
		}
	}
	ok := false
	switch v := v.(type) {
	case map[string]any:
		ok = s.Type == "object"
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				problems = append(problems, at+" lacks "+name)
			}
		}
		for name, value := range v {
			if p := s.Properties[name]; p != nil {
				problems = append(problems, d.check(at+"."+name, p, value)...)
			} else if s.Additional == nil || !*s.Additional {
				problems = append(problems, at+" has "+name)
			}
		}
	case []any:
		ok = s.Type == "array"
		for i := range v {
			if ok {
				problems = append(problems, d.check(fmt.Sprintf("%s[%d]", at, i), s.Items, v[i])...)
			}
		}
	case string:
		ok = s.Type == "string" && (s.Enum == nil || slices.Contains(s.Enum, v))
	case float64:
		ok = s.Type == "number" || s.Type == "integer" && v == float64(int64(v))
	case bool:
		ok = s.Type == "boolean"
	}
	if !ok {
		problems = append(problems, fmt.Sprintf("%s is %v, which is no %s", at, v, s.Type))
	}
	return problems
}

func TestTheDescriptionHasEveryPathOfTheAPIAndNoOther(t *testing.T) {
	want := []string{"GET /openapi.json"}
	for _, e := range apiReads {
		want = append(want, "GET "+e.path)
	}
	for _, ch := range changes {
		want = append(want, "POST "+ch.api())
	}
	var got, ids []string
	for path, methods := range readDescription(t).Paths {
		for method, o := range methods {
			got = append(got, strings.ToUpper(method)+" "+path)
			ids = append(ids, o.OperationID)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("described:\n%s\nserved:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) {
		t.Errorf("an operation's id is there twice: %v", ids)
	}
}

func TestTheDescriptionHasWhatAChangeNeeds(t *testing.T) {
	d := readDescription(t)
	for _, ch := range changes {
		o := d.Paths[ch.api()]["post"]
		got := slices.Sorted(maps.Keys(o.RequestBody.Content["application/json"].Schema.Properties))
		var want []string
		for _, f := range ch.fields {
			want = append(want, f.name)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: described are %v, taken %v", ch.api(), got, want)
		}
		for _, p := range o.Parameters {
			if p.In == "path" && !strings.Contains(ch.api(), "{"+p.Name+"}") {
				t.Errorf("%s has no %s", ch.api(), p.Name)
			}
		}
	}
}

// TestAnswersAreAsTheDescriptionSays asks for everything, and does everything.
func TestAnswersAreAsTheDescriptionSays(t *testing.T) {
	d := readDescription(t)
	for _, withLocal := range []bool{false, true} {
		r := newRig(t, writable)
		if withLocal {
			r.console.cfg.Local = local{r}
		}
		check := func(method, path string, a answer) {
			t.Helper()
			name := "default"
			if a.StatusCode == http.StatusOK {
				name = "200"
			}
			if kind := a.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("%s: %s", path, kind)
			}
			var v any
			if err := json.Unmarshal([]byte(a.text), &v); err != nil {
				t.Errorf("%s: %v in %s", path, err, a.text)
				return
			}
			s := d.Paths[path][method].Responses[name].Content["application/json"].Schema
			if path == "/openapi.json" {
				return
			}
			for _, p := range d.check(path, s, v) {
				t.Errorf("%s: %s", p, a.text)
			}
		}
		for _, prepare := range []func(){
			func() {}, // nothing is there: mostly errors
			func() {
				for range 20 {
					r.put("a", 1, 0, "x")
				}
				r.put("a", 1, 99, "x")
				r.bury("a", "x")
				r.hold("a", "x")
			},
		} {
			prepare()
			for _, e := range apiReads {
				for _, query := range []string{"", "?limit=2", "?state=delayed", "?limit=0", "?sort=nosuch", "?after=x"} {
					check("get", e.path, r.get(apiRoot+fill.Replace(e.path)+query))
				}
			}
			check("get", "/openapi.json", r.get(apiRoot+"/openapi.json"))
			for _, ch := range changes {
				if ch.verb != "flush" {
					check("post", ch.api(), r.call(fill.Replace(ch.api()), calls[ch.api()]))
				}
			}
			check("post", "/tubes/{tube}/kick", r.call("/tubes/a/kick", `{`))
		}
		check("post", "/tubes/{tube}/flush", r.call("/tubes/a/flush", `{}`))
		check("get", "/stats", r.get(apiRoot+"/stats"))
	}
}

func TestAPathThatIsNotThereIsAnsweredAsJSON(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"/nosuch", "/", "/tubes/a/nosuch"} {
		a := r.get(apiRoot + path)
		if a.StatusCode != http.StatusNotFound || a.text != `{"error":"there is no such page"}`+"\n" {
			t.Errorf("%s: %s %s", path, a.Status, a.text)
		}
	}
}
