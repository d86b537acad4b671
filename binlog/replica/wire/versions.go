package wire

import (
	"fmt"
	"net"

	"trellis/binlog/replica/internal/planted"
)

// versions are those of the protocol that a side of a connection speaks. Each connection has
// the latest one that both sides speak, so that members are replaced by those of a newer
// program one by one, also when the protocol changes.
type versions struct{ lowest, highest uint16 }

// spoken are the versions that this program speaks.
func spoken() versions {
	switch {
	case planted.Has(planted.NextWireOnly):
		return versions{3, 3}
	case planted.Has(planted.NextWire):
		return versions{1, 3}
	}
	return versions{1, 2}
}

// trunksSince is the first version in which members take trunks. All else is as in the one before.
const trunksSince = 2

// agreed is the version of a connection between two sides, 0 if there is none that both speak.
func (v versions) agreed(o versions) uint16 {
	if highest := min(v.highest, o.highest); highest >= max(v.lowest, o.lowest) {
		return highest
	}
	return 0
}

func (v versions) String() string {
	if v.lowest == v.highest {
		return fmt.Sprint("version ", v.lowest)
	}
	return fmt.Sprintf("versions %d to %d", v.lowest, v.highest)
}

// inVersion is a connection as it goes on in a version. Trunks have versions of their own.
func inVersion(version uint16, p purpose, c net.Conn) net.Conn {
	if version > 2 && p != purposeTrunk {
		return planted.Next(c)
	}
	return c
}
