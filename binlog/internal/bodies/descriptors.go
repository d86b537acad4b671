package bodies

import (
	"sync"

	"trellis/binlog/vfs"
)

// mostDescriptors is how many are kept; more are open only while they are all read.
const mostDescriptors = 256

// descriptors are the files that were read last.
type descriptors struct {
	mu    sync.Mutex
	files map[uint32]*descriptor
	uses  uint64
}

// descriptor is an open file. The mutex of descriptors guards it.
type descriptor struct {
	vfs.File
	last    uint64 // the use, counted over all
	readers int
	leaves  bool // the last reader closes it: its file was removed
}

// open returns the file of that number, to be given to release.
func (d *descriptors) open(number uint32, open func() (vfs.File, error)) (*descriptor, error) {
	if f := d.use(number, nil); f != nil {
		return f, nil
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	vfs.ReadRandomly(file)
	return d.use(number, file), nil
}

// use begins a read of a file: of the one that is open, or else of the new one, nil if there is neither.
func (d *descriptors) use(number uint32, file vfs.File) *descriptor {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[number]
	switch {
	case f == nil && file == nil:
		return nil
	case f == nil:
		f = &descriptor{File: file}
		d.files[number] = f
	case file != nil:
		_ = file.Close() // another goroutine was faster
	}
	d.uses++
	f.last = d.uses
	f.readers++
	return f
}

// release ends a read.
func (d *descriptors) release(f *descriptor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.readers--; f.readers == 0 && f.leaves {
		_ = f.Close()
	}
	for len(d.files) > mostDescriptors {
		oldest := uint32(0)
		for n, f := range d.files {
			if f.readers == 0 && (oldest == 0 || f.last < d.files[oldest].last) {
				oldest = n
			}
		}
		if oldest == 0 {
			return
		}
		d.drop(oldest)
	}
}

// drop closes a file as soon as nobody reads it. With mu held.
func (d *descriptors) drop(number uint32) {
	f := d.files[number]
	delete(d.files, number)
	if f.leaves = true; f.readers == 0 {
		_ = f.Close()
	}
}

// forget drops a file that was removed.
func (d *descriptors) forget(number uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[number] != nil {
		d.drop(number)
	}
}

// close drops all.
func (d *descriptors) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.files {
		d.drop(n)
	}
}
