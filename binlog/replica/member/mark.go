package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"trellis/binlog/vfs"
)

// MarkName is the name of the mark's file in a node's directory. A directory that has
// it is no directory for a server without a cluster.
const MarkName = "cluster"

const (
	markTemp  = MarkName + vfs.TempSuffix
	maxMark   = 64 << 10 // bytes; that of MaxMembers is smaller
	markTitle = "trellis member "
	version   = "1"
	sumSize   = len("crc32c 00000000\n")
)

// Errors of Open.
var (
	// ErrDamaged tells of a mark that no program has written, or of a directory that has
	// lost it. There is no salvage: a node that does not know which member it was could
	// vote twice.
	ErrDamaged = errors.New("damaged")

	// ErrVersion tells of a mark that a later program has written. It is apart from
	// ErrDamaged because the node needs a newer program and no empty directory.
	ErrVersion = errors.New("a version of the mark that this program does not know")

	// ErrForeign tells of a directory that holds something else.
	ErrForeign = errors.New("not the directory of a cluster's member")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the bytes of a mark.
func encode(id Identity) ([]byte, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	b := append([]byte(markTitle+version+"\n"), text...)
	b = append(b, '\n')
	return append(b, sumLine(b)...), nil
}

// decode reads the bytes of a mark. It takes only what encode makes, byte for byte.
func decode(b []byte) (Identity, error) {
	title, rest, ok := bytes.Cut(b, []byte("\n"))
	v, known := bytes.CutPrefix(title, []byte(markTitle))
	if !ok || !known {
		return Identity{}, fmt.Errorf("%w: it does not begin with %q", ErrDamaged, markTitle)
	}
	end := len(b) - sumSize
	if end < len(title) || sumLine(b[:end]) != string(b[end:]) {
		return Identity{}, fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
	}
	if string(v) != version {
		return Identity{}, fmt.Errorf("%w: %.20q", ErrVersion, v)
	}
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	var id Identity
	if err := json.Unmarshal(text, &id); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	again, err := encode(id)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !bytes.Equal(again, b) {
		return Identity{}, fmt.Errorf("%w: not as this program writes it", ErrDamaged)
	}
	return id, nil
}

func sumLine(b []byte) string { return fmt.Sprintf("crc32c %08x\n", crc32.Checksum(b, castagnoli)) }

// Read reads the mark of a directory, without changing anything. The error wraps
// fs.ErrNotExist if the directory has none.
func Read(fsys vfs.FS, dir string) (Identity, error) {
	name := filepath.Join(dir, MarkName)
	f, err := fsys.OpenRead(name)
	if err != nil {
		return Identity{}, err
	}
	b, err := readAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return Identity{}, fmt.Errorf("%s: %w", name, err)
	}
	id, err := decode(b)
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", name, err)
	}
	return id, nil
}

func readAll(f vfs.File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxMark {
		return nil, fmt.Errorf("%w: %d bytes", ErrDamaged, size)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && (err != io.EOF || size > 0) {
		return nil, err
	}
	return b, nil
}

// Write makes a mark durable, in the place of the one before if there is one. When it
// has failed, nobody knows which of them is on disk. The caller has locked the
// directory and knows why a node may change what it is; a running node has a Store.
func Write(fsys vfs.FS, dir string, id Identity) error {
	name := filepath.Join(dir, MarkName)
	b, err := encode(id)
	if err == nil {
		err = vfs.Replace(fsys, name, b)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
