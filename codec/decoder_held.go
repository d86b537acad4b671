package codec

// Held is what has come, and is in no command yet, of a line, or of what follows on a body. It is valid until the
// next call of Next. It reports false if that is not kept.
func (d *Decoder) Held() (b []byte, ok bool) {
	switch {
	case d.state == stateLine && d.held == 0:
		return nil, true
	case d.state == stateLine:
		return d.line[:d.held], true
	case d.state == stateBody && d.left < uint64(len(crlf)):
		return crlf[:uint64(len(crlf))-d.left], true
	case d.state == stateBadBody:
		return crlf[1:], true // which is as wrong there as what has come
	}
	return nil, d.state == stateBody
}
