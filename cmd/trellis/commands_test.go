package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// eachCommand visits all commands that can be run.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Name() != "completion" && c.Name() != "help" {
			eachCommand(c, visit)
		}
	}
}

func TestEveryCommandHasAManualPage(t *testing.T) {
	dir := t.TempDir()
	root := newCommand()
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1"}, dir); err != nil {
		t.Fatal(err)
	}
	eachCommand(root, func(c *cobra.Command) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil || !strings.Contains(string(page), strings.ReplaceAll(c.Short, "-", `\-`)) && !strings.Contains(string(page), c.Short) {
			t.Errorf("%s: %v, %d bytes without %q", c.CommandPath(), err, len(page), c.Short)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q", c.CommandPath(), c.Short)
		}
		if c.Runnable() && c.Long == "" {
			t.Errorf("%s: no description", c.CommandPath())
		}
	})
}

func TestWhatAsksAServerHasTheSameFlagsAndTellsItsExitStatus(t *testing.T) {
	asking := 0
	eachCommand(newCommand(), func(c *cobra.Command) {
		if c.Flags().Lookup("no-headers") == nil {
			return
		}
		asking++
		for _, name := range []string{"addr", "output", "timeout", "tls", "ca", "cert", "key", "token-file"} {
			if c.Flags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", c.CommandPath(), name)
			}
		}
		if !strings.Contains(c.Long, exitHelp) || c.Example == "" {
			t.Errorf("%s has no example, or does not tell its exit status", c.CommandPath())
		}
		if c.ValidArgsFunction == nil && !strings.Contains(c.Use, "FILE") {
			t.Errorf("%s completes files", c.CommandPath())
		}
	})
	if asking < 18 {
		t.Errorf("%d commands", asking)
	}
}

func TestCompletionOffersTheServersTubes(t *testing.T) {
	t.Parallel()
	addr := fake(t, map[string]string{"list-tubes": "{OK}---\n- mail\n- mail/in\n- other\n- \x1b[2J\n- mail\x1b\n- -x\n"})
	for line, want := range map[string]string{
		"tubes ma":                  "mail mail/in",
		"jobs ":                     "mail mail/in other",
		"jobs mail ":                "",
		"peek --tube o":             "other",
		"move 1 --to mail/":         "mail/in",
		"copy --to mail/":           "mail/in",
		"dlq set mail 5 o":          "other",
		"settings set ma":           "mail mail/in",
		"clear --state ":            "ready reserved delayed buried",
		"bury --tube mail --state ": "ready delayed",
		"kick --count ":             "all",
		"tubes -o ":                 "table json ndjson yaml",
		"delete ":                   "",
		"stats ":                    "",
		"drain ":                    "",
	} {
		before, last := line[:strings.LastIndex(line, " ")], line[strings.LastIndex(line, " ")+1:]
		args := append([]string{"__complete"}, strings.Fields(before)...)
		behind := 2 // the command
		if args[1] == "dlq" || args[1] == "settings" {
			behind = 3
		}
		args = slices.Insert(args, behind, "--timeout=1m")
		out, errs, status := trellisIn(t, []string{"TRELLIS_ADDR=" + addr}, append(args, last)...)
		words := strings.Fields(out)
		if n := len(words); status != 0 || n == 0 || strings.Join(words[:n-1], " ") != want || words[n-1] != ":4" { // no file names
			t.Errorf("%s: status %d, %q, want %q\n%s", line, status, out, want, errs)
		}
	}
}

func TestCompletionOffersFilesForTheCommandOfWork(t *testing.T) {
	t.Parallel()
	addr := fake(t, map[string]string{"list-tubes": "{OK}---\n- mail\n"})
	for line, want := range map[string]string{"work ma": "mail\n:4\n", "work mail -- ": ":0\n", "work mail -- convert ": ":0\n"} {
		args := append([]string{"__complete", "work", "--timeout=1m"}, strings.Split(line, " ")[1:]...)
		if out, errs, status := trellisIn(t, []string{"TRELLIS_ADDR=" + addr}, args...); status != 0 || out != want {
			t.Errorf("%s: status %d, %q, want %q\n%s", line, status, out, want, errs)
		}
	}
}

func TestAMistypedCommandIsAnError(t *testing.T) {
	eachCommand(newCommand(), func(c *cobra.Command) {
		if !c.HasSubCommands() || c.Name() == "settings" { // whose argument is a pattern
			return
		}
		args := append(strings.Fields(c.CommandPath())[1:], "nosuch")
		if out, errs, status := trellis(t, args...); status == 0 || out != "" || !strings.Contains(errs, `unknown command "nosuch"`) {
			t.Errorf("trellis %s: status %d\n%s%s", strings.Join(args, " "), status, out, errs)
		}
	})
}

func TestCompletionDoesNotWaitForAServer(t *testing.T) {
	t.Parallel()
	silent := fake(t, map[string]string{"list-tubes": ""})
	for _, addr := range []string{silent, "127.0.0.1:1", "not an address", fake(t, map[string]string{"list-tubes": "OK 999999999\r\n"})} {
		out, _, status := trellisIn(t, []string{"TRELLIS_ADDR=" + addr}, "__complete", "jobs", "")
		if status != 0 || out != ":4\n" {
			t.Errorf("%s: status %d, %q", addr, status, out)
		}
	}
}
