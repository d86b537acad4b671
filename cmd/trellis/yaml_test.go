package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// notTexts are names of tubes that readers of YAML take for something else, if they are not quoted.
var notTexts = []string{
	"1", "1.5", ".5", "+1", "1e5", "0x1f", "0o17", "017", "1_000", "null", "Null", "yes", "No", "on", "off", "y", "n", "true", "FALSE",
	"2024-01-01", "1.", ".inf", ".nan", "mail",
}

// eachValue visits the values of a document's dictionaries, each of a list for itself.
func eachValue(n *yaml.Node, visit func(key string, value *yaml.Node)) {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			values := []*yaml.Node{c}
			if c.Kind == yaml.SequenceNode {
				values = c.Content
			}
			for _, v := range values {
				visit(n.Content[i-1].Value, v)
			}
		}
		eachValue(c, visit)
	}
}

func TestNamesAreTextsInYAML(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	for _, name := range notTexts {
		c.put(name, "1", "0", "60", "body")
		c.do("watch " + name)
		c.do(fmt.Sprintf("set-tube %s attempts=3 dead=%s", name, name))
		c.do("use " + name)
	}
	for command, names := range map[string]int{
		"tubes": len(notTexts) + 1, "stats --tube 1.5": 1, "stats --tube null": 1, "connections": 10, "settings": 2 * len(notTexts),
		"dlq list": 2 * len(notTexts), "stats --job 1": 1, "put -t 1.5 x": 1, "dlq set 1.5 3 yes": 2, "group 1.5": 0, "stats": 0, "jobs 1.5": 0,
	} {
		out, errs, status := trellis(t, append(strings.Fields(command), "-a", s.addr, "-o", "yaml")...)
		var document yaml.Node
		if err := yaml.Unmarshal([]byte(out), &document); err != nil || status > exitNothing {
			t.Errorf("%s: status %d, %v\n%s%s", command, status, err, out, errs)
			continue
		}
		eachValue(&document, func(key string, v *yaml.Node) {
			if !slices.Contains([]string{"name", "tube", "dead", "dead-tube", "watching"}, key) {
				return
			}
			names--
			if v.Style != yaml.DoubleQuotedStyle { // versions of YAML differ in what else is a text
				t.Errorf("%s: the %s %s is bare", command, key, v.Value)
			}
		})
		if names > 0 {
			t.Errorf("%s: %d names are missing\n%s", command, names, out)
		}
	}
}

func TestKeysThatReadersOfYAMLMisunderstandAreQuoted(t *testing.T) {
	for key, want := range map[string]string{
		"current-jobs-ready": "current-jobs-ready", "ttr": "ttr", "null": `"null"`, "yes": `"yes"`, "y": `"y"`, "off": `"off"`, "1": `"1"`, "-a": `"-a"`, "A": `"A"`,
	} {
		if got := yamlKey(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
