package codec

import "math"

// A shape is how far a line is that of a put with tags, well formed or not: the word, four
// numbers that beanstalkd would take, and a fifth word that begins with letters and a colon.
// Such a put takes its body along whatever follows, because what follows may be written by
// a stranger, and the body as well.
type shape uint8

const (
	noShape      shape = 0  // it is not
	newLine      shape = 1  // nothing is known; up to beforeNumber, bytes of the command's word are
	beforeNumber shape = 5  // before the first number; an even shape is within one
	inLast       shape = 12 // within the fourth number
	beforeTag    shape = 13
	inTag        shape = 14 // within the letters
	tagged       shape = 15
)

// newShape is that of a line of which nothing is known.
func (d *Decoder) newShape() shape {
	if d.Extensions {
		return newLine
	}
	return noShape
}

// isTagged reports whether a line is that of a put with tags, the body of which has d.left bytes.
func (d *Decoder) isTagged(line []byte) bool {
	d.shape = d.newShape()
	d.follow(line)
	return d.shape == tagged
}

// follow takes the next bytes of a line into account.
func (d *Decoder) follow(p []byte) {
	for _, c := range p {
		switch digit := uint64(c - '0'); {
		case d.shape == noShape || d.shape == tagged:
			return
		case d.shape < beforeNumber && c == "put "[d.shape-newLine]:
			d.shape++
		case d.shape < beforeNumber:
			d.shape = noShape
		case c == ' ' && d.shape <= beforeTag:
			d.shape |= 1 // before what follows
		case digit <= 9 && d.shape <= inLast:
			if d.shape&1 == 1 {
				d.shape++
				d.left = 0
			}
			if d.left = d.left*10 + digit; d.left > math.MaxUint32 {
				d.shape = noShape
			}
		case 'a' <= c|0x20 && c|0x20 <= 'z' && d.shape >= beforeTag:
			d.shape = inTag
		case c == ':' && d.shape == inTag:
			d.shape = tagged
		default:
			d.shape = noShape
		}
	}
}
