// Package quantity reads sizes and times as people write them in flags and in files, with units. Whatever takes bytes,
// seconds or milliseconds reads them by a Unit, so that 64Ki and 5m mean the same everywhere.
//
// A plain number counts in the unit itself. A result is exact, but for a fraction of a size, which is cut to whole
// bytes. The package does not know the least and the most that a flag takes: the one who asks checks that.
package quantity
