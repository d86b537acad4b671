package journal

// Terms are what a job was put with beside its keys. Most jobs have none. They do not change.
type Terms struct {
	// Fair is the key whose turn decides among ready jobs of equal priority; "" for none.
	Fair string
	// Group is the group that the job is a member of until its end; "" for none.
	Group string
	// After is the group that the job waits for; "" for none. Settled says that members
	// which are buried do not count.
	After   string
	Settled bool
	// Expires is how many seconds after Created the job may be started; 0: for ever.
	Expires uint32
}

// TermsFixed is what the terms of a record take beside their own bytes, if there are any.
const TermsFixed = 8

// size is what terms take in a full record, in bytes.
func (t *Terms) size() int64 {
	if t == nil {
		return 0
	}
	return TermsFixed + int64(len(t.Fair)+len(t.Group)+len(t.After))
}

// valid reports whether a record can hold the terms.
func (t *Terms) valid() bool {
	return t == nil || *t != Terms{} && len(t.Fair) <= MaxKey && len(t.Group) <= MaxKey && len(t.After) <= MaxKey &&
		(t.After != "" || !t.Settled) && (t.After == "" || t.After != t.Group)
}

// Fair is that of the terms, "" without terms.
func (k *Keys) Fair() string {
	if k.Terms == nil {
		return ""
	}
	return k.Terms.Fair
}
