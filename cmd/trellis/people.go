package main

import (
	"strconv"
	"strings"

	"trellis/cmd/internal/client"
	"trellis/cmd/internal/operate"
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

// asWhole shows a value that is a whole number as text does, and another one as it is.
func asWhole(text func(uint64) string) func(client.Value) string {
	return func(v client.Value) string {
		n, err := strconv.ParseUint(v.Text, 10, 64)
		if err != nil {
			return v.Text
		}
		return text(n)
	}
}

var (
	asTime  = asWhole(operate.Seconds)
	asSize  = asWhole(operate.Size[uint64])
	asCount = asWhole(func(n uint64) string { return operate.Count(n) })
	asPause = asWhole(operate.PauseText)
)

// columnsOf are the columns that a view has of tubes.
func columnsOf(view operate.View) (columns []column) {
	for _, c := range operate.ColumnsOf(view) {
		col := column{head: strings.ToUpper(c.Heading), key: c.JSON, right: c.Kind != operate.Name}
		switch c.Kind {
		case operate.Number:
			col.show = asCount
		case operate.Age:
			col.show = asTime
		case operate.Pause:
			col.show, col.style = asPause, ifAny(yellow)
		}
		if c.Alarm {
			col.style = ifAny(red)
		}
		columns = append(columns, col)
	}
	return columns
}

// counted is a column of numbers.
func counted(head, key string) column {
	return column{head: head, key: key, right: true, show: asCount}
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
