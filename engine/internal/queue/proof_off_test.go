//go:build !proof

package queue

const proof = false
