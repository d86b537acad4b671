package main

import (
	"strings"
	"testing"
)

func TestReloadTellsWhatWasLoadedAndWhatNot(t *testing.T) {
	const can = everyExtension + "- reload\n"
	const certificates = "- name: certificates\n  files: \"/c /k\"\n  result: loaded\n"
	for _, tt := range []struct {
		reply, out, errs string
		status           int
	}{
		{"{OK}---\n" + certificates, "NAME          RESULT  FILES  ERROR\ncertificates  loaded  /c /k  -\n", "", 0},
		{
			"{OK}---\n" + certificates + "- name: auth-file\n  files: \"/a\"\n  result: failed\n  error: \"open /a: 'no' \x1b\"\n",
			"NAME          RESULT  FILES  ERROR\ncertificates  loaded  /c /k  -\nauth-file     failed  /a     open /a: 'no' \\x1b\n",
			"1 of 2 could not be loaded; what was loaded before counts", exitNothing,
		},
		{"{OK}---\n", "", "no files that it could load again", exitNothing},
		{"UNKNOWN_COMMAND\r\n", "", "this client has no right to it", exitRefused},
	} {
		addr := fake(t, map[string]string{"capabilities": can, "reload": tt.reply})
		out, errs, status := trellis(t, "reload", "-a", addr)
		if out != tt.out || status != tt.status || !strings.Contains(errs, tt.errs) || (errs == "") != (tt.errs == "") {
			t.Errorf("%q: status %d\n%s%s", tt.reply, status, out, errs)
		}
	}
}
