//go:build proof

package faults_test

// proof tells that this is a run of make proof, which leaves nothing out.
const proof = true
