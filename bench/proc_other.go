//go:build !linux

package bench

import (
	"errors"
	"runtime"
)

func processCPU(int) (usage, error) { return usage{}, errors.ErrUnsupported }

func processMemory(int) int64 { return 0 }

func processStarved(int) int64 { return 0 }

func spareProcessors() bool { return runtime.NumCPU() > 1 }

func processorModel() string { return "an unknown processor" }

func kernelVersion() string { return "an unknown kernel" }
