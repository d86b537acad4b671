package doc_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const development = "development.md"

func TestThePageForDevelopersIsShort(t *testing.T) {
	if n := len(read(t, development)); n > 8<<10 {
		t.Errorf("%s has %d bytes: a package's own document is the place for what is more than 8192", development, n)
	}
}

// questions are changes that somebody wants to make who has read the page for developers and looks at the tree, and
// where they begin: one of these files.
var questions = []struct{ change, files string }{
	{"the reply to stats-tube lacks a field", "engine/cmd_stats.go"},
	{"a PROXY header of version 2 has a field that is not skipped", "reactor/internal/accept/proxy.go"},
	{"a gateway gives the leader too little credit for replies", "reactor/internal/relay/client.go"},
	{"a sync that fails while a segment is compacted is not reported", "binlog/compact.go"},
	{"release with a delay of zero puts the job at a wrong place", "engine/internal/shard/release.go engine/internal/shard/change.go"},
	{"a put with two spaces between its numbers is accepted", "codec/parse.go"},
	{"a TLS handshake may take longer", "reactor/internal/accept/handshakes.go reactor/internal/accept/handshake.go"},
	{"a client that reads slowly is closed too late", "reactor/internal/stream/supervise.go"},
	{"a snapshot that is read from disk lacks a check", "binlog/replica/snapshot/load.go"},
	{"a flag has a wrong default", "cmd/trellisd/internal/options/table.go"},
	{"the console's table of tubes needs another column", "cmd/internal/operate/columns.go"},
	{"a metric of the binlog lacks its unit", "cmd/trellisd/internal/metrics/binlog.go"},
	{"a delayed job becomes ready too late", "engine/internal/shard/shard.go engine/internal/queue/wheel.go"},
	{"max-reserved of a tube is counted wrongly", "engine/internal/shard/gate.go engine/internal/shard/settings.go"},
	{"a fair key gets two jobs in one lap", "engine/internal/shard/fair.go"},
	{"a member is let in whose certificate names another host", "binlog/replica/wire/names.go binlog/replica/wire/tls.go"},
	{"a half-closed client loses its last reply", "reactor/closing.go"},
	{"a reserve-batch takes more jobs than it was asked for", "engine/cmd_batch.go engine/internal/shard/batch.go"},
	{"trellis top sorts ties at random", "cmd/trellis/internal/top/model.go"},
	{"a client's session is resumed twice at a new leader", "reactor/internal/relay/leader.go reactor/resumption.go"},
}

func TestQuestionsOfANewcomerHaveTheirFiles(t *testing.T) {
	for _, q := range questions {
		for f := range strings.FieldsSeq(q.files) {
			if _, err := os.Stat(root + f); err != nil {
				t.Errorf("%s: %v", q.change, err)
			}
		}
	}
}

var named = regexp.MustCompile("`((?:codec|engine|reactor|binlog|bench|cmd)(?:/[a-zA-Z0-9_.*-]+)*)`")

func TestThePageForDevelopersNamesWhatExists(t *testing.T) {
	found := named.FindAllStringSubmatch(read(t, development), -1)
	if len(found) < 40 {
		t.Fatalf("%s names %d files and folders only: does the pattern still find them?", development, len(found))
	}
	for _, m := range found {
		if files, err := filepath.Glob(root + m[1]); err != nil || len(files) == 0 {
			t.Errorf("%s names %s, which is not there: %v", development, m[1], err)
		}
	}
}
