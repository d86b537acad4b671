package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/console/chart"
	"trellis/cmd/internal/operate"
)

//go:embed templates static
var files embed.FS

// asset is a file that pages need. Its path has a part of its hash in it, so that browsers
// may keep it.
type asset struct {
	tag, kind string
	data      []byte
}

var assets = func() map[string]asset {
	m := make(map[string]asset)
	entries, err := fs.ReadDir(files, "static")
	if err != nil {
		panic(err) // it is built in
	}
	for _, e := range entries {
		data, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		m[e.Name()] = asset{tag: hex.EncodeToString(sum[:6]), kind: mime.TypeByExtension(path.Ext(e.Name())), data: data}
	}
	return m
}()

// ServeHTTP implements [http.Handler].
func (a asset) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.data)
}

// parsePages reads the templates of pages, each with the layout.
func (c *Console) parsePages() map[string]*template.Template {
	base := c.cfg.Base
	funcs := template.FuncMap{
		"number": operate.Count, "plural": operate.Counted, "size": operate.Size[uint64], "since": operate.Seconds,
		"duration": operate.Duration,
		"line":     func(s string) string { return line(s, nameRunes) },
		"asset":    func(name string) string { return base + "/static/" + assets[name].tag + "/" + name },
		"tubeURL": func(name string) string {
			if client.CheckTube(name) != nil {
				return "" // no link to what cannot be
			}
			return base + "/tubes/" + tubeElement(name)
		},
		"jobURL": func(id uint64) string { return fmt.Sprintf("%s/jobs/%d", base, id) },
		"group":  groupPath,
		"link":   func(path string) string { return base + path },
		"share":  share,
		"n":      func(f client.Fields, key string) uint64 { return f.Uint(key) },
		"text":   func(f client.Fields, key string) string { return line(f.Text(key), nameRunes) },
		"list":   listed,
		"clock":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"iso":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"dict":   func(pairs ...any) map[string]any { return pairsOf(pairs) },
	}
	layout := template.Must(template.New("layout.html").Funcs(funcs).ParseFS(files, "templates/layout.html",
		"templates/parts.html"))
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	pages := make(map[string]*template.Template)
	for _, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name != "layout" && name != "parts" {
			pages[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, file))
		}
	}
	return pages
}

// pairsOf makes a map of keys and values, for templates that need several.
func pairsOf(pairs []any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// share draws what states a tube's jobs are in.
func share(t *operate.Tube) template.HTML {
	return chart.Share([]chart.Part{
		{Class: "ready", Value: float64(t.Ready)},
		{Class: "reserved", Value: float64(t.Reserved)},
		{Class: "delayed", Value: float64(t.Delayed)},
		{Class: "buried", Value: float64(t.Buried)},
	})
}

// listed is a list in statistics as a text.
func listed(f client.Fields, key string) string {
	v, _ := f.Get(key)
	var parts []string
	for _, item := range v.List[:min(len(v.List), 10)] {
		parts = append(parts, line(item.Text, 40))
	}
	if len(v.List) > 10 {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}
