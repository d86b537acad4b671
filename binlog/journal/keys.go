package journal

// Keys are the unique key and the limited key that a job was put with. Most jobs have
// neither, and the zero Keys.
type Keys struct {
	// Unique is a key that no other job of the tube has while this one lives; "" for none.
	Unique string
	// Limited is a key of which at most Limit jobs of the tube are reserved when this one
	// becomes reserved, itself included; "" for none.
	Limited string
	Limit   uint32
	// Seconds is how long nobody gets the unique key after the job was deleted.
	Seconds uint32
}

// MaxKey is the length in bytes of the longest key.
const MaxKey = 64

// KeysFixed is what the keys of a record take beside the keys' own bytes, if there are any.
const KeysFixed = 10

// Size is what keys take in a full record, in bytes.
func (k *Keys) Size() int64 {
	if *k == (Keys{}) {
		return 0
	}
	return KeysFixed + int64(len(k.Unique)) + int64(len(k.Limited))
}

// Valid tells whether a record can hold the keys.
func (k *Keys) Valid() bool {
	return len(k.Unique) <= MaxKey && len(k.Limited) <= MaxKey &&
		(k.Unique != "" || k.Seconds == 0) && (k.Limited != "") == (k.Limit > 0)
}

// Tombstone is what is left of the keys when the job was deleted. It is zero if the unique
// key is free then.
func (k *Keys) Tombstone() Keys {
	if k.Unique == "" || k.Seconds == 0 {
		return Keys{}
	}
	return Keys{Unique: k.Unique, Seconds: k.Seconds}
}

// SizeOf is the length in bytes of the full record of a job with those keys in that tube.
// body is the length of its body plus [Record.Optional].
func SizeOf(tube string, body int, k *Keys) int64 {
	return (FullFixed + int64(len(tube)) + k.Size() + int64(body) + 7) &^ 7
}

// TombstoneSize is the length in bytes of the record of the tombstone that a job with those
// keys in that tube may leave, 0 if it leaves none.
func TombstoneSize(tube string, k *Keys) int64 {
	left := k.Tombstone()
	if left == (Keys{}) {
		return 0
	}
	return SizeOf(tube, 0, &left)
}

// MaxTombstone is the length in bytes of the longest record of a tombstone.
const MaxTombstone = (FullFixed + MaxTube + KeysFixed + MaxKey + 7) &^ 7
