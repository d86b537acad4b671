//go:build proof

package soak

import (
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
