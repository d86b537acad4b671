package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"trellis/engine"
)

func TestASettingOfTheWallClockIsNoticedOnce(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	var told []time.Time
	wall, now := began, engine.Time(0)
	c := &wallClock{
		now: func() engine.Time { return now }, wall: func() time.Time { return wall },
		set:   func(start time.Time) { told = append(told, start) },
		log:   slog.New(slog.NewTextHandler(&log, nil)),
		start: began,
	}
	pass := func(d time.Duration) {
		now += engine.Time(d)
		wall = wall.Add(d)
		c.look()
	}
	pass(time.Minute)
	wall = wall.Add(wallClockSlack / 2) // as when it is made to run faster for a while
	pass(time.Second)
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour} {
		told = nil
		wall = wall.Add(jump)
		pass(time.Second)
		pass(time.Second)
		want := wall.Add(-time.Duration(now))
		if len(told) != 1 || !told[0].Equal(want) {
			t.Errorf("after %v: told of %v, want %v", jump, told, want)
		}
	}
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Errorf("%d messages: %s", got, log.String())
	}
}
