package compare

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMarkdownReplacesWhatIsBetweenTheMarks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	for _, text := range []string{"one\n", "two\nlines\n"} {
		if err := UpdateMarkdown(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if want := markBegin + text + markEnd; err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("no marks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := UpdateMarkdown(file, []byte("x")); err == nil {
		t.Error("a file without marks was changed")
	}
}
