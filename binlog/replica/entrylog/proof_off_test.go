//go:build !proof

package entrylog

// proof tells that this is no run of make proof: some cases of many are enough.
const proof = false
