package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	parentPatience = time.Second     // for the end of a worker whose pipe has ended
	killPatience   = 5 * time.Second // for the end of what was killed
)

// killStarting kills the processes of runs whose worker has ended before it could tell their groups. They have the name of
// the run in their environment.
func killStarting(runs []string, worker int) {
	// The system kills a command that has not begun yet when its worker has ended, which is after the end of the pipe.
	for begun := time.Now(); os.Getppid() == worker && time.Since(begun) < parentPatience; {
		time.Sleep(time.Millisecond)
	}
	for begun := time.Now(); time.Since(begun) < killPatience; time.Sleep(5 * time.Millisecond) {
		found, all := ofRuns(runs)
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if all && len(found) == 0 { // none that was found has started another meanwhile
			return
		}
	}
}

// ofRuns are the processes that have the name of one of the runs in their environment. all is false when there may be
// others, since a process in the middle of execve has no environment for a moment.
func ofRuns(runs []string) (pids []int, all bool) {
	all = true
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && len(environ) == 0 && inExec(dir) {
			all = false
		}
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if run, ok := bytes.CutPrefix(variable, []byte(runEnv+"=")); ok && slices.Contains(runs, string(run)) {
				pids = append(pids, pid)
			}
		}
	}
	return pids, all
}

// inExec tells whether a process without an environment may be about to get one: it has not ended, and is none of the kernel's.
func inExec(dir string) bool {
	const kernelThread = 0x00200000 // PF_KTHREAD, in include/linux/sched.h
	stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
	name := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[name+1:])) // state, ppid, pgrp, session, tty_nr, tpgid, flags: see proc_pid_stat(5)
	if len(fields) < 7 || fields[0] == "Z" || fields[0] == "X" {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err == nil && flags&kernelThread == 0
}
