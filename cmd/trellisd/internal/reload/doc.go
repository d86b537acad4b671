// Package reload has files loaded again when they change while the server runs.
//
// Files are compared by what is in them: every [Interval], and within [Glance] of a change
// that the system's times and sizes show. A notification by the system would not come for a
// file on a network, nor for one whose directory is a symbolic link that is swapped, as secrets
// are in Kubernetes. What is being written while somebody looks is not taken before two looks
// in a row have seen the same, so that a file need not be replaced in one step. What cannot be
// loaded is reported once, and what was loaded before stays in force; each look tries again,
// because time may mend it, as with a certificate that is not valid yet. A load that can do
// without what is wrong says so by a [PartialError].
//
// Who has changed a file need not wait: [Files.Reload] loads it at once, and tells what came
// of it.
package reload
