//go:build proof

package main

// proof says that everything is to be tried.
const proof = true
