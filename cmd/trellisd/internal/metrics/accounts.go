package metrics

import "trellis/engine/account"

// accountMetrics are by account, of which access.Store allows a bounded number.
var accountMetrics = list[*account.Snapshot]{
	gauges("what", "beanstalkd_account_holds",
		"What an account holds: jobs, bytes of memory, tubes, keys and connections.",
		byAmount(func(x account.Amount) float64 { return float64(x.Holds) }), "account"),
	gauges("what", "beanstalkd_account_limit",
		"How much an account may hold; rate: commands a second. Not shown where there is no limit.",
		append(byAmount(func(x account.Amount) float64 { return limitOf(x.Limit) }), by[*account.Snapshot]{
			{"rate", func(a *account.Snapshot) float64 { return limitOf(a.Limits.Rate) }},
		}...), "account"),
	counters("what", "beanstalkd_account_refused_total", "What was answered OUT_OF_MEMORY because of an account's limit.",
		byAmount(func(x account.Amount) float64 { return float64(x.Refused) }), "account"),
	counter("beanstalkd_account_waits_total", "Times that a client had to wait because of its account's rate.",
		func(a *account.Snapshot) float64 { return float64(a.Waits) }, "account"),
}

// byAmount is a value of each of an account's amounts.
func byAmount(value func(account.Amount) float64) (all by[*account.Snapshot]) {
	for i, x := range new(account.Snapshot).Amounts() {
		all = append(all,
			by[*account.Snapshot]{{x.What, func(a *account.Snapshot) float64 { return value(a.Amounts()[i]) }}}...)
	}
	return all
}

func limitOf(n int64) float64 { return shownIf(n > 0, float64(n)) }
