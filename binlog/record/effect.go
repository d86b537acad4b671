package record

import "trellis/binlog/journal"

// EffectOf is what a sound record says of the command that has made it. ok is false if it says nothing
// of one.
func EffectOf(b []byte) (x journal.Effect, ok bool) {
	var o journal.Origin
	switch KindOf(b) {
	case Full:
		x.Kind, x.State = journal.EffectPut, stateIn(b[68])
		o = decodeOrigin(b[fullFixed:], b[68]&originFlag != 0)
	case Update:
		x.Kind, x.State = journal.EffectUpdate, stateIn(b[52])
		o = decodeOrigin(b[UpdateSize:], b[52]&originFlag != 0)
	case Delete:
		x.Kind = journal.EffectDelete
		o = DeleteOrigin(b)
	case Setting, Policy:
		o = settingOriginOf(b)
		x.Kind = journal.EffectSetting
	case Hold:
		offset := le.Uint64(b[32:])
		o = journal.Origin{Session: le.Uint64(b[16:]), Offset: offset &^ touchBit}
		x.Kind = journal.EffectHold
		if offset&touchBit != 0 {
			x.Kind = journal.EffectTouch
		}
	}
	if o.Offset == 0 {
		return journal.Effect{}, false
	}
	x.Session, x.Offset = o.Session, o.Offset
	if x.Kind != journal.EffectSetting {
		x.ID = Number(b)
	}
	return x, true
}

// settingOriginOf is the command that has made a setting or a policy.
func settingOriginOf(b []byte) journal.Origin {
	at := settingFixed
	if KindOf(b) == Policy {
		at = policyFixed
	}
	return decodeOrigin(b[at:], b[14]&settingOrigin != 0)
}
