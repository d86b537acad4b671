package metrics

import (
	"bufio"
	"os"
	"path"
	"strconv"
	"strings"
)

// memoryLimit is how much memory the process can use, in bytes: what the machine
// has, or less if a control group allows less. 0 if that is unknown.
func memoryLimit() int64 { return memoryLimitIn("/") }

func memoryLimitIn(root string) int64 {
	limit := machineMemory(root)
	group := controlGroup(root)
	for {
		if n := groupLimit(root, group); n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
		if group == "/" {
			return limit
		}
		group = path.Dir(group) // the limit of a parent holds for the process too
	}
}

func machineMemory(root string) int64 {
	f, err := os.Open(path.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if kb, ok := strings.CutPrefix(s.Text(), "MemTotal:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// controlGroup is the process's group in the unified hierarchy, "/" if unknown.
func controlGroup(root string) string {
	b, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(b)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Join("/", group)
		}
	}
	return "/"
}

// groupLimit is 0 if the group has none.
func groupLimit(root, group string) int64 {
	b, err := os.ReadFile(path.Join(root, "sys/fs/cgroup", group, "memory.max"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is none
	return n
}
