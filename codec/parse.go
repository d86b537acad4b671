package codec

// parse reads the command at the start of s into cmd. s may go on behind the line
// or end within it. parse returns the index at which the line must end for cmd to
// be right; with noMatch, cmd is right wherever the line ends.
//
// The words are prefixes, and the first that fits in beanstalkd's order decides.
// The order only matters among words with a common beginning, so the first byte
// may choose among them.
func parse(s []byte, cmd *Command) int {
	if len(s) == 0 {
		cmd.set(OpUnknown)
		return noMatch
	}
	switch s[0] {
	case 'a':
		if has(s, "auth ") {
			return parseAuth(s, cmd)
		}
	case 'p':
		switch {
		case has(s, "put "):
			return parsePut(s, cmd)
		case has(s, "peek "):
			return parseID(OpPeek, s, len("peek "), cmd)
		case has(s, "peek-ready"):
			return word(OpPeekReady, "peek-ready", cmd)
		case has(s, "peek-delayed"):
			return word(OpPeekDelayed, "peek-delayed", cmd)
		case has(s, "peek-buried"):
			return word(OpPeekBuried, "peek-buried", cmd)
		case has(s, "pause-tube"):
			return parsePause(s, cmd)
		}
	case 'r':
		switch {
		case has(s, "reserve"):
			return parseReserve(s, cmd)
		case has(s, "release "):
			return parseRelease(s, cmd)
		}
	case 'd':
		if has(s, "delete ") {
			return parseID(OpDelete, s, len("delete "), cmd)
		}
	case 'u':
		if has(s, "use ") {
			return parseName(OpUse, s, len("use "), cmd)
		}
	case 'w':
		if has(s, "watch ") {
			cmd.Weight = 1
			return parseName(OpWatch, s, len("watch "), cmd)
		}
	case 'i':
		if has(s, "ignore ") {
			return parseName(OpIgnore, s, len("ignore "), cmd)
		}
	case 'b':
		if has(s, "bury ") {
			return parseBury(s, cmd)
		}
	case 't':
		if has(s, "touch ") {
			return parseID(OpTouch, s, len("touch "), cmd)
		}
	case 'k':
		switch {
		case has(s, "kick "):
			return parseKick(s, cmd)
		case has(s, "kick-job "):
			return parseID(OpKickJob, s, len("kick-job "), cmd)
		}
	case 's':
		switch {
		case has(s, "stats-job "):
			return parseID(OpStatsJob, s, len("stats-job "), cmd)
		case has(s, "stats-tube "):
			return parseName(OpStatsTube, s, len("stats-tube "), cmd)
		case has(s, "stats"):
			return word(OpStats, "stats", cmd)
		}
	case 'l':
		switch {
		case has(s, "list-tubes-watched"):
			return word(OpListTubesWatched, "list-tubes-watched", cmd)
		case has(s, "list-tube-used"):
			return word(OpListTubeUsed, "list-tube-used", cmd)
		case has(s, "list-tubes"):
			return word(OpListTubes, "list-tubes", cmd)
		}
	case 'q':
		if has(s, "quit") {
			return word(OpQuit, "quit", cmd)
		}
	}
	cmd.set(OpUnknown)
	return noMatch
}

// word is for a command without arguments.
func word(op Op, word string, cmd *Command) int {
	cmd.set(op)
	return len(word)
}

func parseID(op Op, s []byte, i int, cmd *Command) int {
	cmd.ID, i = number64(s, i)
	return complete(op, i, cmd)
}

func parseName(op Op, s []byte, i int, cmd *Command) int {
	end := nameRun(s, i)
	cmd.Tube = s[i:end]
	if !validName(cmd.Tube) {
		end = noMatch
	}
	return complete(op, end, cmd)
}

// parseAuth makes a malformed auth an unknown command, which is what it is to a server
// without authentication.
func parseAuth(s []byte, cmd *Command) int {
	i := len("auth ")
	end := i
	for end < len(s) && '!' <= s[end] && s[end] <= '~' {
		end++
	}
	if end == i {
		cmd.set(OpUnknown)
		return noMatch
	}
	cmd.Token = s[i:end]
	cmd.set(OpAuth)
	return end
}

func parsePut(s []byte, cmd *Command) int {
	i := len("put ")
	cmd.Tags = nil
	if cmd.Pri, i = number32(s, i); i >= 0 {
		if cmd.Delay, i = number32(s, i); i >= 0 {
			if cmd.TTR, i = number32(s, i); i >= 0 {
				cmd.Size, i = number32(s, i)
			}
		}
	}
	return complete(OpPut, i, cmd)
}

func parseReserve(s []byte, cmd *Command) int {
	switch {
	case has(s, "reserve-with-timeout "):
		var i int
		cmd.Timeout, i = number32(s, len("reserve-with-timeout "))
		if cmd.Timeout > MaxTimeout {
			i = noMatch
		}
		return complete(OpReserveWithTimeout, i, cmd)
	case has(s, "reserve-job "):
		return parseID(OpReserveJob, s, len("reserve-job "), cmd)
	default:
		return word(OpReserve, "reserve", cmd)
	}
}

func parseRelease(s []byte, cmd *Command) int {
	i := len("release ")
	if cmd.ID, i = number64(s, i); i >= 0 {
		if cmd.Pri, i = number32(s, i); i >= 0 {
			cmd.Delay, i = number32(s, i)
		}
	}
	return complete(OpRelease, i, cmd)
}

func parseBury(s []byte, cmd *Command) int {
	i := len("bury ")
	if cmd.ID, i = number64(s, i); i >= 0 {
		cmd.Pri, i = number32(s, i)
	}
	return complete(OpBury, i, cmd)
}

func parseKick(s []byte, cmd *Command) int {
	v, i := strtoul(s, len("kick "))
	cmd.Bound = uint32(v) // cut, as beanstalkd does
	return complete(OpKick, i, cmd)
}

func parsePause(s []byte, cmd *Command) int {
	i := len("pause-tube")
	for i < len(s) && s[i] == ' ' {
		i++
	}
	end := nameRun(s, i)
	cmd.Tube = s[i:end]
	cmd.Delay, i = number32(s, end)
	complete(OpPauseTube, i, cmd)
	if !validName(cmd.Tube) {
		// CountAs keeps OpPauseTube if a delay followed: the name is checked
		// after the command was counted.
		cmd.Op = OpBadFormat
	}
	return i
}

// complete makes cmd a command whose arguments end at i, or a malformed line if
// they did not fit.
func complete(op Op, i int, cmd *Command) int {
	if i < 0 {
		op = OpBadFormat
	}
	cmd.set(op)
	return i
}
