//go:build !proof

package engine

const proof = false
