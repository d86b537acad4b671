// Package faultfs is a file system in memory for tests of code that must
// survive crashes. It can refuse the n-th call, write short, run full, and lose
// its power.
//
// What a power cut leaves is chosen at random among all that a disk is allowed
// to do: of a file whatever was synced, and for each sector of 512 bytes that
// was written to since, the bytes as they were after any of those writes or torn
// between two of them; of a directory the entries as they were synced, with any
// selection of the changes since. What was to be synced by a call that failed is
// lost for good, whatever later calls say, as on Linux. What a torn sector held before and was not
// written again stays as it was.
package faultfs
