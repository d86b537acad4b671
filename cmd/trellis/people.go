package main

import (
	"strconv"
	"strings"

	"trellis/cmd/internal/client"
)

// times and sizes are the keys of statistics that are seconds and bytes.
var (
	times = map[string]bool{
		"uptime": true, "age": true, "delay": true, "ttr": true, "time-left": true, "pause": true, "pause-time-left": true, "waiting-time": true,
	}
	sizes = map[string]bool{"binlog-max-size": true, "size": true, "bytes-in": true, "bytes-out": true}
	names = map[string]bool{"id": true, "pid": true, "pri": true, "file": true} // numbers that count nothing
)

// forPeople is a value as tables show it.
func forPeople(f client.Field) string {
	switch {
	case f.Value.Kind == client.List:
		return strings.Join(texts(f.Value.List), ", ")
	case f.Value.Kind != client.Number, names[f.Key]:
		return f.Value.Text
	case times[f.Key]:
		return asTime(f.Value)
	case sizes[f.Key]:
		return asSize(f.Value)
	}
	return asCount(f.Value)
}

func texts(values []client.Value) (all []string) {
	for _, v := range values {
		all = append(all, v.Text)
	}
	return all
}

// asTime shows seconds.
func asTime(v client.Value) string {
	n, err := strconv.ParseUint(v.Text, 10, 64)
	if err != nil {
		return v.Text
	}
	return seconds(n)
}

// asSize shows bytes.
func asSize(v client.Value) string {
	n, err := strconv.ParseInt(v.Text, 10, 64)
	if err != nil {
		return v.Text
	}
	return size(n)
}

// asCount shows how many there are.
func asCount(v client.Value) string {
	n, err := strconv.ParseUint(v.Text, 10, 64)
	if err != nil {
		return v.Text
	}
	return grouped(n)
}

// forEver is the number of seconds above which a pause is shown without its end: see pauseForEver.
const forEver = 10 * 365 * 86400

// asPause shows the seconds that are left of a pause.
func asPause(v client.Value) string {
	switch n, err := strconv.ParseUint(v.Text, 10, 64); {
	case err != nil:
		return v.Text
	case n == 0:
		return "-"
	case n > forEver:
		return "yes"
	default:
		return seconds(n)
	}
}

// counted is a column of numbers.
func counted(head, key string) column {
	return column{head: head, key: key, right: true, show: asCount}
}

// alarming is a column of numbers that should be 0.
func alarming(head, key string) column {
	c := counted(head, key)
	c.style = ifAny(red)
	return c
}

// ifAny is a style for numbers other than 0.
func ifAny(s style) func(client.Value) style {
	return func(v client.Value) style {
		if v.Text == "0" {
			return ""
		}
		return s
	}
}
