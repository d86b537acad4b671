package metrics

import "trellis/engine"

// accountMetrics are by account, of which access.Store allows a bounded number.
var accountMetrics = list[*engine.AccountSnapshot]{
	gauges("what", "beanstalkd_account_holds",
		"What an account holds: jobs, bytes of memory, tubes, keys and connections.",
		byAmount(func(x engine.AccountAmount) float64 { return float64(x.Holds) }), "account"),
	gauges("what", "beanstalkd_account_limit",
		"How much an account may hold; rate: commands a second. Not shown where there is no limit.",
		append(byAmount(func(x engine.AccountAmount) float64 { return limitOf(x.Limit) }), by[*engine.AccountSnapshot]{
			{"rate", func(a *engine.AccountSnapshot) float64 { return limitOf(a.Limits.Rate) }},
		}...), "account"),
	counters("what", "beanstalkd_account_refused_total", "What was answered OUT_OF_MEMORY because of an account's limit.",
		byAmount(func(x engine.AccountAmount) float64 { return float64(x.Refused) }), "account"),
	counter("beanstalkd_account_waits_total", "Times that a client had to wait because of its account's rate.",
		func(a *engine.AccountSnapshot) float64 { return float64(a.Waits) }, "account"),
}

// byAmount is a value of each of an account's amounts.
func byAmount(value func(engine.AccountAmount) float64) (all by[*engine.AccountSnapshot]) {
	for i, x := range new(engine.AccountSnapshot).Amounts() {
		all = append(all,
			by[*engine.AccountSnapshot]{{x.What, func(a *engine.AccountSnapshot) float64 { return value(a.Amounts()[i]) }}}...)
	}
	return all
}

func limitOf(n int64) float64 { return shownIf(n > 0, float64(n)) }
