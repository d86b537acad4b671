package record

import "trellis/binlog/journal"

// putKeys writes the keys of a job that has some, and returns how many bytes they take.
func putKeys(b []byte, k *journal.Keys) int {
	b[0], b[1] = byte(len(k.Unique)), byte(len(k.Limited))
	le.PutUint32(b[2:], k.Seconds)
	le.PutUint32(b[6:], k.Limit)
	n := journal.KeysFixed + copy(b[journal.KeysFixed:], k.Unique)
	return n + copy(b[n:], k.Limited)
}

// keysAt is where in a full record its keys start, if it has some.
func keysAt(b []byte) int { return fullFixed + attemptsIn(b[68]) + int(b[69]) }

// keysSize is how many bytes the keys of a sound full record take.
func keysSize(b []byte) int {
	if b[68]&keysFlag == 0 {
		return 0
	}
	at := keysAt(b)
	return journal.KeysFixed + int(b[at]) + int(b[at+1])
}

// decodeKeys reads the keys of a sound full record.
func decodeKeys(b []byte) (k journal.Keys) {
	if b[68]&keysFlag == 0 {
		return k
	}
	b = b[keysAt(b):]
	unique, limited := b[journal.KeysFixed:][:b[0]], b[journal.KeysFixed+int(b[0]):][:b[1]]
	return journal.Keys{
		Unique: string(unique), Seconds: le.Uint32(b[2:]),
		Limited: string(limited), Limit: le.Uint32(b[6:]),
	}
}

// keysFit tells whether a full record of n bytes, the first 72 of which are in b, has a
// length that keys can give it.
func keysFit(b []byte, n int64) bool {
	rest := int64(keysAt(b)) + int64(le.Uint32(b[44:])) + journal.KeysFixed
	return (rest+1+7)&^7 <= n && n <= (rest+2*journal.MaxKey+7)&^7
}

// keysPossible judges the keys of a full record with a right checksum, whose length keysFit
// has found possible.
func keysPossible(b []byte) bool {
	at := keysAt(b)
	if len(b) < at+journal.KeysFixed {
		return false
	}
	if b[at] > journal.MaxKey || b[at+1] > journal.MaxKey || len(b) < at+keysSize(b) {
		return false
	}
	k := decodeKeys(b)
	want := (int64(at) + k.Size() + int64(le.Uint32(b[44:])) + 7) &^ 7
	return k != journal.Keys{} && k.Valid() && int64(len(b)) == want
}
