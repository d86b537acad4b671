package codec

// httpEnd is how the first line of an HTTP request ends, but for its line feed. The x
// stands for 0 or 1.
const httpEnd = " HTTP/1.x\r"

// wholeHTTP is what matchHTTP returns for a line that ends so.
const wholeHTTP = uint8(len(httpEnd))

// matchHTTP returns how many bytes of the beginning of httpEnd a line ends with once p is
// added to it. Before, it was k.
func matchHTTP(k uint8, p []byte) uint8 {
	if len(p) > len(httpEnd) {
		p, k = p[len(p)-len(httpEnd):], 0
	}
	for _, c := range p {
		switch {
		case k < wholeHTTP && (c == httpEnd[k] || httpEnd[k] == 'x' && (c == '0' || c == '1')):
			k++
		case c == ' ': // which occurs only at the beginning
			k = 1
		default:
			k = 0
		}
	}
	return k
}
