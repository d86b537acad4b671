package script

import (
	"embed"
	"fmt"
	"testing"
)

//go:embed testdata/*.txt
var corpus embed.FS

// Corpus returns all cases of testdata, file by file. It panics if a file cannot
// be parsed.
func Corpus() []Case {
	entries, err := corpus.ReadDir("testdata")
	if err != nil {
		panic(fmt.Sprintf("script: reading the corpus: %v", err))
	}
	var all []Case
	for _, entry := range entries {
		source, err := corpus.ReadFile("testdata/" + entry.Name())
		if err != nil {
			panic(fmt.Sprintf("script: reading the corpus: %v", err))
		}
		cases, err := Parse(entry.Name(), string(source))
		if err != nil {
			panic(fmt.Sprintf("script: parsing the corpus: %v", err))
		}
		all = append(all, cases...)
	}
	return all
}

// RunCorpus runs each case that is meant for a target with these tags as a
// parallel subtest. With a real server most of the time is spent waiting: a
// package that uses one should raise the flag test.parallel in its TestMain.
func RunCorpus(t *testing.T, target Target, tags ...string) {
	t.Helper()
	for _, c := range Corpus() {
		if !c.Applies(tags...) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := Play(c, target, tags...); err != nil {
				t.Error(err)
			}
		})
	}
}
