//go:build !proof

package binlog

const proof = false
