package shard

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"trellis/engine/internal/clock"
	"trellis/engine/internal/spread"
)

// What the model says of weights, modes, and replies that tell more.

func (m *model) reserveMode(c *modelClient, words string) string {
	c.mode, c.info = strings.CutSuffix(words, " info")
	return "USING " + words + "\r\n"
}

// choose is the job that a reserve of the client takes, nil if there is none.
func (m *model) choose(c *modelClient) *modelJob {
	var some []*modelJob // the first of each tube
	for _, t := range c.watched {
		if j := m.first(t); j != nil && !m.shut(t) {
			some = append(some, j)
		}
	}
	if len(some) == 0 {
		return nil
	}
	load := func(j *modelJob) *big.Rat {
		return big.NewRat(int64(len(m.in(j.tube, "reserved", byID))), int64(c.weights[j.tube]))
	}
	switch c.mode {
	case "weighted":
	case "weighted-fair":
		least := load(slices.MinFunc(some, func(a, b *modelJob) int { return load(a).Cmp(load(b)) }))
		some = slices.DeleteFunc(some, func(j *modelJob) bool { return load(j).Cmp(least) > 0 })
	default:
		return slices.MinFunc(some, byPriority)
	}
	sum := 0
	for _, j := range some {
		sum += c.weights[j.tube]
	}
	r := new(big.Int).SetUint64(spread.Mix(c.id) + c.chosen*0x9E3779B97F4A7C15)
	r.Rsh(r.Mul(r, big.NewInt(int64(sum))), 64)
	c.chosen++
	sum = 0
	for _, j := range some {
		if sum += c.weights[j.tube]; r.Int64() < int64(sum) {
			return j
		}
	}
	panic("weights do not add up")
}

// infoOf is what a client is told of a job that it reserves.
func (m *model) infoOf(c *modelClient, j *modelJob) string {
	if !c.info {
		return ""
	}
	s := fmt.Sprintf(" tube:%s pri:%d age:%d ttr:%d attempts:%d", j.tube.name, j.pri, int64((m.now-j.created)/clock.Second), j.ttr, j.attempts)
	if j.keys.Unique != "" {
		s += " idp:" + j.keys.Unique
	}
	if j.keys.Limited != "" {
		s += " con:" + j.keys.Limited
	}
	if x := j.keys.Terms; x != nil {
		if x.Group != "" {
			s += " grp:" + x.Group
		}
		if x.Fair != "" {
			s += " fair:" + x.Fair
		}
	}
	return s
}
