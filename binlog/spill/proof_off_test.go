//go:build !proof

package spill

const proof = false
