package record

import "trellis/binlog/journal"

const settingFixed = 16 // bytes before the names

func settingSize(tube, dead int) int64 { return int64(settingFixed+tube+dead+7) &^ 7 }

// SettingSize is the length in bytes of the record of s.
func SettingSize(s *journal.Setting) int64 { return settingSize(len(s.Tube), len(s.DeadTube)) }

// ValidSetting tells whether s can be a record: its tube, and, if it does not end the
// tube's setting, its dead tube have 1 to journal.MaxTube bytes.
func ValidSetting(s *journal.Setting) bool {
	return possibleSetting(s.MaxAttempts, len(s.Tube), len(s.DeadTube))
}

func possibleSetting(most uint32, tube, dead int) bool {
	return tube > 0 && tube <= journal.MaxTube && dead <= journal.MaxTube && (most == 0) == (dead == 0)
}

// EncodeSetting fills b, which has SettingSize bytes, with a valid setting.
func EncodeSetting(b []byte, salt Salt, s *journal.Setting) {
	putHead(b, Setting)
	le.PutUint32(b[8:], s.MaxAttempts)
	b[12], b[13], b[14], b[15] = byte(len(s.Tube)), byte(len(s.DeadTube)), 0, 0
	n := settingFixed + copy(b[settingFixed:], s.Tube)
	n += copy(b[n:], s.DeadTube)
	clear(b[n:])
	seal(b, salt)
}

// DecodeSetting reads a sound setting.
func DecodeSetting(b []byte) journal.Setting {
	dead := settingFixed + int(b[12])
	return journal.Setting{
		MaxAttempts: le.Uint32(b[8:]),
		Tube:        string(b[settingFixed:dead]),
		DeadTube:    string(b[dead : dead+int(b[13])]),
	}
}

// impossibleSetting judges what a setting with a right checksum and length says.
func impossibleSetting(b []byte) string {
	tube, dead := int(b[12]), int(b[13])
	if !possibleSetting(le.Uint32(b[8:]), tube, dead) || b[14]|b[15] != 0 || !allZero(b[settingFixed+tube+dead:]) {
		return "a setting record with impossible fields"
	}
	return ""
}
