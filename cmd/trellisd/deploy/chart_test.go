//go:build proof

package deploy_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"trellis/binlog/replica/wire/wiretest"
	"trellis/cmd/trellisd/internal/servertest"
)

var update = flag.Bool("update", false, "write the golden manifests")

const chart = "helm/trellis"

// valueSets are those in testdata, and those of the documents.
func valueSets(t *testing.T) map[string]string {
	t.Helper()
	documented := filepath.Join(t.TempDir(), "values.yaml")
	servertest.NoError(t, os.WriteFile(documented, []byte(servertest.DocumentBlock(t, "chart-cluster")), 0o600))
	sets := map[string]string{"documented": documented}
	for _, name := range []string{"one-server", "in-memory", "five-members", "tls", "monitoring"} {
		sets[name] = filepath.Join("testdata", name+".yaml")
	}
	return sets
}

// manifest is one object for Kubernetes, as far as it is looked at.
type manifest struct {
	text     string
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas int
		Template struct{ Spec podSpec }
		Groups   []any
	}
}

type podSpec struct {
	GracePeriod int64 `yaml:"terminationGracePeriodSeconds"`
	Containers  []struct {
		Args   []string
		Env    []struct{ Name, Value string }
		Mounts []struct {
			Name string
			Path string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
}

// manifests are what helm template makes of the chart.
func manifests(t *testing.T, args ...string) (all []manifest, err error) {
	t.Helper()
	out, err := run(t, "TRELLIS_HELM", append([]string{"template", "trellis", chart, "--namespace=queues"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr(err))
	}
	for text := range strings.SplitSeq(strings.TrimPrefix(string(out), "---\n"), "\n---\n") {
		m := manifest{text: text}
		servertest.NoError(t, yaml.Unmarshal([]byte(text), &m))
		all = append(all, m)
	}
	return all, nil
}

func TestTheChartMakesTheseManifests(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := run(t, "TRELLIS_HELM", "lint", "--strict", chart, "--values="+values); err != nil {
				t.Errorf("%v\n%s%s", err, out, stderr(err))
			}
			all, err := manifests(t, "--values="+values)
			servertest.NoError(t, err)
			var text bytes.Buffer
			for _, m := range all {
				text.WriteString("---\n" + withoutFiles(t, m) + "\n")
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				servertest.NoError(t, os.WriteFile(golden, text.Bytes(), 0o666))
			}
			want, err := os.ReadFile(golden)
			servertest.NoError(t, err)
			if text.String() != string(want) {
				t.Errorf("not %s, see -update:\n%s", golden, &text)
			}
		})
	}
}

// withoutFiles is the text of a manifest without the alerts and the dashboard, which are those of the files.
func withoutFiles(t *testing.T, m manifest) string {
	t.Helper()
	switch m.Kind {
	case "PrometheusRule":
		text, err := os.ReadFile("prometheus/trellis.rules.yml")
		servertest.NoError(t, err)
		var file struct{ Groups []any }
		servertest.NoError(t, yaml.Unmarshal(text, &file))
		if len(file.Groups) == 0 || !reflect.DeepEqual(m.Spec.Groups, file.Groups) {
			t.Errorf("the alerts are not those of the file:\n%s", m.text)
		}
		head, _, _ := strings.Cut(m.text, "\nspec:")
		return head
	case "ConfigMap":
		text, err := os.ReadFile("grafana/trellis.json")
		servertest.NoError(t, err)
		if m.Data["trellis.json"] != strings.TrimSpace(string(text)) {
			t.Error("the dashboard is not that of the file")
		}
		head, _, _ := strings.Cut(m.text, "\ndata:")
		return head
	}
	return strings.TrimSpace(m.text)
}

func TestPodsOfTheChartAreStartedRight(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := manifests(t, "--values="+values)
			servertest.NoError(t, err)
			pods := 0
			for _, m := range all {
				if m.Kind != "StatefulSet" {
					continue
				}
				for ; pods < m.Spec.Replicas; pods++ {
					checkPod(t, fmt.Sprintf("%s-%d", m.Metadata.Name, pods), m.Spec.Template.Spec)
				}
			}
			if pods == 0 {
				t.Error("there are no pods")
			}
		})
	}
}

// checkPod has the server check the command line of a pod with that name, as the kubelet would start it.
func checkPod(t *testing.T, name string, pod podSpec) {
	t.Helper()
	c := container{root: t.TempDir()}
	expand := strings.NewReplacer("$(POD_NAME)", name)
	for _, a := range pod.Containers[0].Args {
		c.args = append(c.args, expand.Replace(a))
	}
	for _, e := range pod.Containers[0].Env {
		c.env = append(c.env, e.Name+"="+expand.Replace(e.Value))
	}
	for _, mount := range pod.Containers[0].Mounts {
		servertest.NoError(t, os.MkdirAll(filepath.Join(c.root, mount.Path), 0o755))
		if mount.Path != binlogDir {
			c.mountSecret(t, mount.Path)
		}
	}
	settings := c.settings(t)
	var delay time.Duration
	if d := settings["stop-delay"]; d != "" {
		var err error
		delay, err = time.ParseDuration(d)
		servertest.NoError(t, err)
	}
	if grace := time.Duration(pod.GracePeriod) * time.Second; grace < delay+30*time.Second {
		t.Errorf("a pod that goes on for %v is killed after %v", delay, grace)
	}
	if node := settings["node"]; node != "" && !strings.Contains(","+settings["cluster"]+",", ","+node+",") {
		t.Errorf("%s is not of %s", node, settings["cluster"])
	}
}

// mountSecret makes the files of a secret of the chart: a certificate's, and those that are read by their names.
func (c *container) mountSecret(t *testing.T, dir string) {
	t.Helper()
	authority := wiretest.NewAuthority(t, "authority")
	files := authority.Issue(time.Now().Add(time.Hour), "*.trellis-pods.queues.svc")
	for name, from := range map[string]string{"tls.crt": files.Cert, "tls.key": files.Key, "ca.crt": authority.File} {
		text, err := os.ReadFile(from)
		servertest.NoError(t, err)
		c.write(t, filepath.Join(dir, name), text)
	}
	c.write(t, filepath.Join(dir, "web.yml"), []byte("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n"))
	c.write(t, filepath.Join(dir, "auth"), []byte(servertest.TokenLine("all", "secret", "all", "*")+"\n"))
}

func TestTheChartRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ values, says string }{
		{"members=2", "members"},
		{"members=3", "members of a cluster need a certificate"},
		{"members=3,cluster.secretName=members,persistence.enabled=false", "members of a cluster need persistence"},
		{"tls.enabled=true", "TLS needs a certificate"},
		{"tls.clientAuth=perhaps", "clientAuth"},
		{"persistence.size=8", "size"},
		{"stopDelay=5", "stopDelay"},
		{"options.node=n1", "invalid propertyName 'node'"},
		{"replicas=3", "replicas"},
	} {
		_, err := manifests(t, "--set="+tt.values)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.values, err)
		}
	}
}

func TestTheChartHasTheVersionOfTheProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../version.go")
	servertest.NoError(t, err)
	program := regexp.MustCompile(`\bversion = "(.*)"`).FindSubmatch(text)
	text, err = os.ReadFile(chart + "/Chart.yaml")
	servertest.NoError(t, err)
	var c struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	servertest.NoError(t, yaml.Unmarshal(text, &c))
	if want := string(program[1]); c.Version != want || c.AppVersion != want {
		t.Errorf("%+v, and the program is %s", c, want)
	}
}
