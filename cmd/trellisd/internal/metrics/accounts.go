package metrics

import "trellis/engine"

// accountMetrics are by account, of which access.Store allows a bounded number.
var accountMetrics = list[*engine.AccountSnapshot]{
	gauges("what", "beanstalkd_account_holds",
		"What an account holds: jobs, bytes of memory, tubes, keys and connections.", by[*engine.AccountSnapshot]{
			{"jobs", func(a *engine.AccountSnapshot) float64 { return float64(a.Holds.Jobs) }},
			{"memory", func(a *engine.AccountSnapshot) float64 { return float64(a.Holds.Memory) }},
			{"tubes", func(a *engine.AccountSnapshot) float64 { return float64(a.Holds.Tubes) }},
			{"keys", func(a *engine.AccountSnapshot) float64 { return float64(a.Holds.Keys) }},
			{"connections", func(a *engine.AccountSnapshot) float64 { return float64(a.Holds.Connections) }},
		}, "account"),
	gauges("what", "beanstalkd_account_limit",
		"How much an account may hold; rate: commands a second. Not shown where there is no limit.", by[*engine.AccountSnapshot]{
			{"jobs", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Jobs) }},
			{"memory", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Memory) }},
			{"tubes", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Tubes) }},
			{"keys", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Keys) }},
			{"connections", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Connections) }},
			{"rate", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Rate) }},
		}, "account"),
	counters("what", "beanstalkd_account_refused_total",
		"What was answered OUT_OF_MEMORY because of an account's limit.", by[*engine.AccountSnapshot]{
			{"jobs", func(a *engine.AccountSnapshot) float64 { return float64(a.RefusedJobs) }},
			{"memory", func(a *engine.AccountSnapshot) float64 { return float64(a.RefusedMemory) }},
			{"tubes", func(a *engine.AccountSnapshot) float64 { return float64(a.RefusedTubes) }},
			{"keys", func(a *engine.AccountSnapshot) float64 { return float64(a.RefusedKeys) }},
			{"connections", func(a *engine.AccountSnapshot) float64 { return float64(a.RefusedConnections) }},
		}, "account"),
	counter("beanstalkd_account_waits_total", "Times that a client had to wait because of its account's rate.",
		func(a *engine.AccountSnapshot) float64 { return float64(a.Waits) }, "account"),
}

func limitOf(n int64) float64 { return shownIf(n > 0, float64(n)) }
