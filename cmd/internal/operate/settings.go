package operate

import (
	"context"
	"strconv"

	"trellis/cmd/internal/client"
	"trellis/codec"
)

// A Setting is a key of a tube's setting.
type Setting struct {
	Key     string
	Value   string // empty: the default
	Default string
}

// SettingsOf are all keys, of an entry of list-settings.
func SettingsOf(f client.Fields) (all []Setting) {
	for k := range codec.NumTubeKeys {
		s := Setting{Key: k.String(), Default: k.Default()}
		if s.Value = f.Text(s.Key); s.Value == s.Default {
			s.Value = ""
		}
		all = append(all, s)
	}
	return all
}

// SettingOfTube is the entry of list-settings that a tube has, or would have with all keys at the default. Needs
// the extension list-settings.
func SettingOfTube(ctx context.Context, conn *client.Conn, tube string) (client.Fields, error) {
	f, err := conn.Setting(ctx, tube)
	if err != nil || f != nil {
		return f, err
	}
	f = client.Fields{{Key: "tube", Value: client.Value{Text: tube}}}
	for k := range codec.NumTubeKeys {
		v := client.Value{Text: k.Default()}
		if _, err := strconv.ParseUint(v.Text, 10, 64); err == nil {
			v.Kind = client.Number
		}
		f = append(f, client.Field{Key: k.String(), Value: v})
	}
	return f, nil
}

// JobsToDo is how many jobs workers have or could be given now, by the answers to stats-tube and stats-tube-x. More
// workers are of no use to jobs that a pause or a limit of their tube holds back.
func JobsToDo(f client.Fields) client.Field {
	n := number(f, "current-jobs-reserved")
	if by := f.Text("limited-by"); f.Uint("pause-time-left") == 0 && (by == "none" || by == "") {
		n += number(f, "current-jobs-ready")
	}
	return client.Field{Key: "jobs-to-do", Value: client.Value{Kind: client.Number, Text: strconv.FormatInt(n, 10)}}
}

// HeldBack tells why a tube hands out none of its ready jobs, by the answer to stats-tube-x; empty if nothing holds it
// back. A pause with an end is not among it: stats-tube tells of that.
func HeldBack(f client.Fields) string {
	left, waits := f.Uint("limited-for"), f.Uint("current-jobs-ready") > 0
	switch by := f.Text("limited-by"); {
	case by == "pause" && left == 0:
		return "Paused by its setting."
	case by == "reserved" && waits:
		return "Held back by max-reserved, next when a reserved job is done."
	case by == "rate" && waits && left == 0:
		return "Held back by rate, next within a second."
	case by == "rate" && waits:
		return "Held back by rate, next in " + Seconds(left) + "."
	}
	return ""
}
