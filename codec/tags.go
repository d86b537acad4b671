package codec

// MaxKey is the length in bytes of the longest key of a tag.
const MaxKey = 64

// parseTags reads the tags of the put s, a line without its CR LF, from s[i] on. It returns
// false if anything else stands there.
func parseTags(s []byte, i int, cmd *Command) bool {
	a := arguments{s: s, at: i}
	var tags Tags // kept only if the put is well formed, so that it costs others nothing
	for !a.end() {
		w := a.word()
		switch {
		case has(w, "idp:") && tags.Unique == nil:
			key, n, _, ok := parseTag(w[len("idp:"):])
			if !ok {
				return false
			}
			tags.Unique, tags.Seconds = key, n
		case has(w, "con:") && tags.Limited == nil:
			key, n, given, ok := parseTag(w[len("con:"):])
			if !given {
				n = 1
			}
			if !ok || n == 0 {
				return false
			}
			tags.Limited, tags.Limit = key, n
		default:
			return false
		}
	}
	cmd.Tags = &tags
	return true
}

// parseTag reads a key, and the number behind it if one is given.
func parseTag(w []byte) (key []byte, n uint32, given, ok bool) {
	end := nameRun(w, 0)
	key = w[:end:end]
	if !validName(key) || len(key) > MaxKey {
		return nil, 0, false, false
	}
	if end == len(w) {
		return key, 0, false, true
	}
	if w[end] != ':' {
		return nil, 0, false, false
	}
	v, to := digits(w, end+1, end+1, 0)
	if to != len(w) || v > 1<<32-1 {
		return nil, 0, false, false
	}
	return key, uint32(v), true, true
}
