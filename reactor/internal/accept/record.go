package accept

import "crypto/tls"

// What crypto/tls goes by in the first record, RFC 8446, section 5.1.
const (
	recordHeader    = 5
	alertRecord     = 21
	handshakeRecord = 22
	oldHello        = 0x80 // the first byte of SSL 2.0
	maxRecord       = recordHeader + 1<<14
)

// isNoTLS reports whether b is the beginning of what crypto/tls does not answer, as it does not take it for a record.
func isNoTLS(b []byte) bool {
	if len(b) < recordHeader || b[0] == oldHello {
		return false
	}
	return b[0] != alertRecord && b[0] != handshakeRecord || b[1] >= 0x10
}

// firstRecord is how many bytes crypto/tls waits for if the first record begins with b.
func firstRecord(b []byte) int {
	if len(b) < recordHeader || b[0] != handshakeRecord {
		return recordHeader
	}
	n := recordHeader + int(b[3])<<8 + int(b[4])
	if n > maxRecord {
		return recordHeader
	}
	return min(n, maxBareInput)
}

// errNoTLS is what crypto/tls says of a client that does not speak TLS.
var errNoTLS = tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}

// noTLSAlert is the alert unexpected_message, RFC 8446, section 6.
var noTLSAlert = []byte{21, 3, 3, 0, 2, 2, 10}
