package metrics

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheMemoryLimitIsTheLeastOfMachineAndControlGroups(t *testing.T) {
	const meminfo = "MemTotal:       1024 kB\nMemFree:         5 kB\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, 0},
		"no groups":        {map[string]string{"proc/meminfo": meminfo}, 1 << 20},
		"unlimited group": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n",
		}, 1 << 20},
		"own group": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "1:name=x:/y\n0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/b/memory.max": "4096\n",
		}, 4096},
		"parent's group": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
		}, 5000},
		"container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "6000\n",
		}, 6000},
		"more than there is": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9999999\n",
		}, 1 << 20},
	} {
		root := t.TempDir()
		for file, text := range tt.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimitIn(root); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
