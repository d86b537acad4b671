//go:build !proof

package arena

const proof = false
