package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/quantity"
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

// InSeconds is a pair of set-tube as the protocol has it, of one whose times may have units, as in retry-min=10s and
// rate=50/1m.
func InSeconds(pair string) (string, error) {
	key, value, _ := strings.Cut(pair, "=")
	before := ""
	switch key {
	case codec.KeyRetryMin.String(), codec.KeyRetryMax.String(), codec.KeyExpire.String(), codec.KeyLinger.String():
	case codec.KeyRate.String():
		count, per, _ := strings.Cut(value, "/")
		before, value = count+"/", per
	default:
		return pair, nil
	}
	if value == "" { // the default, or a rate without a time
		return pair, nil
	}
	n, err := quantity.Seconds.Parse(value)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return fmt.Sprintf("%s=%s%d", key, before, n), nil
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
