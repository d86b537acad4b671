package engine

import (
	"slices"

	"trellis/codec"
)

// extensions are the names that capabilities lists: commands, and tags of a put.
var extensions = [...]string{
	"capabilities", "flush-tube", "list-jobs", "kick-tube", "peek-tube", "move-job", "move-tube", "delete-tube-jobs",
	"reserve-batch",
	"touch-all", "drain", "undrain", "set-dlq", "list-dlq", "idp", "con", "stats-conn", "list-connections",
	"kick-connection", "list-accounts", "reload",
}

// workExtensions are names that capabilities lists behind those, where all that they make can be
// recorded.
var workExtensions = [...]string{
	"set-tube", "list-settings", "reserve-mode", "watch-weight", "grp", "aft", "fair", "exp", "stats-group",
	"stats-tube-x",
	"stats-tubes",
}

// capabilities tells a client what the server can do that beanstalkd cannot.
func (s *Session) capabilities(out *Output) {
	l := s.loop
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.quoted("version", l.engine.config.Info.Version)
	y.number("max-job-size", uint64(l.engine.config.MaxJobSize))
	y.number("max-tube-name-len", codec.MaxTubeName)
	y = append(y, "extensions:\n"...)
	names := extensions[:]
	if l.engine.Log().RecordsAll() {
		names = slices.Concat(names, workExtensions[:])
	}
	for _, name := range names {
		y = append(y, "- "...)
		y = append(y, name...)
		y = append(y, '\n')
	}
	l.reply(out, y)
}
