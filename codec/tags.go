package codec

import "bytes"

// MaxKey is the length in bytes of the longest key of a tag.
const MaxKey = 64

// parseTags reads the tags of the put s, a line without its CR LF, from s[i] on. It returns
// false if anything else stands there.
func parseTags(s []byte, i int, cmd *Command) bool {
	a := arguments{s: s, at: i}
	var tags Tags // kept only if the put is well formed, so that it costs others nothing
	for !a.end() {
		if !tags.read(a.word()) {
			return false
		}
	}
	if tags.After != nil && bytes.Equal(tags.After, tags.Group) {
		return false // it would wait for itself
	}
	cmd.Tags = &tags
	return true
}

// read reads a tag, which must be the first of its kind.
func (t *Tags) read(w []byte) bool {
	colon := []byte(":")
	kind, w, _ := bytes.Cut(w, colon)
	key, more, given := bytes.Cut(w, colon)
	switch string(kind) {
	case "idp":
		return readKey(key, &t.Unique) && (!given || readNumber(more, &t.Seconds))
	case "con":
		t.Limit = 1
		return readKey(key, &t.Limited) && (!given || readNumber(more, &t.Limit)) && t.Limit > 0
	case "fair":
		return readKey(key, &t.Fair) && !given
	case "grp":
		return readKey(key, &t.Group) && !given
	case "aft":
		t.Settled = given
		return readKey(key, &t.After) && (!given || string(more) == "settled")
	case "exp":
		first := !t.HasExpiry
		t.HasExpiry = true
		return first && readNumber(key, &t.Expires) && !given
	}
	return false
}

// readKey reads a word that is a key, unless there is one already.
func readKey(w []byte, to *[]byte) bool {
	if *to != nil || len(w) > MaxKey || nameRun(w, 0) != len(w) || !validName(w) {
		return false
	}
	*to = w
	return true
}

// readNumber reads a word that is a number.
func readNumber(w []byte, to *uint32) bool {
	v, end := digits(w, 0, 0, 0)
	*to = uint32(v)
	return len(w) > 0 && end == len(w) && v <= 1<<32-1
}
