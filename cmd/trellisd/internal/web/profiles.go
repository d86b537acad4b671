package web

import (
	"net/http"
	"strconv"
)

// maxProfile is how many seconds a profile or a trace may take. A trace is in memory meanwhile.
const maxProfile = 60

// shortened has a handler of net/http/pprof take maxProfile seconds at most.
func shortened(profile http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		// Not a number is not <= either.
		if n, err := strconv.ParseFloat(q.Get("seconds"), 64); err == nil && !(n <= maxProfile) {
			q.Set("seconds", strconv.Itoa(maxProfile))
			r.URL.RawQuery = q.Encode()
		}
		profile(w, r)
	})
}
