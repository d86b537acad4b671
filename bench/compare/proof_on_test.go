//go:build proof

package compare

// proof tells that this is the proof, which does all there is, and not the quick test.
const proof = true
