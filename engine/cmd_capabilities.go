package engine

import "trellis/codec"

// extensions are the names that capabilities lists: commands, and tags of a put.
var extensions = [...]string{
	"capabilities", "flush-tube", "list-jobs", "kick-tube", "peek-tube", "move-job", "move-tube", "delete-tube-jobs", "reserve-batch",
	"touch-all", "drain", "undrain",
	"stats-conn", "list-connections",
}

// capabilities tells a client what the server can do that beanstalkd cannot.
func (s *Session) capabilities(out *Output) {
	l := s.loop
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.quoted("version", l.engine.cfg.Info.Version)
	y.number("max-job-size", uint64(l.engine.cfg.MaxJobSize))
	y.number("max-tube-name-len", codec.MaxTubeName)
	y = append(y, "extensions:\n"...)
	for _, name := range extensions {
		y = append(y, "- "...)
		y = append(y, name...)
		y = append(y, '\n')
	}
	l.reply(out, y)
}
