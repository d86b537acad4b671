//go:build !proof

package faults_test

// proof tells that this is no run of make proof: some cases of many are enough.
const proof = false
