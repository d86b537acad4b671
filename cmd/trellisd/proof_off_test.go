//go:build !proof

package main

const proof = false
