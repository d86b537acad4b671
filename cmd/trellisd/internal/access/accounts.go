package access

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trellis/cmd/internal/quantity"
	"trellis/engine/account"
)

// An accountLine is what a line of a file says of an account.
type accountLine struct {
	name   string
	tubes  []string
	limits account.Limits
}

// maxAccounts bounds what is shown by account, in metrics and in lists.
const maxAccounts = 1000

// maxAccountName is the most bytes in an account's name.
const maxAccountName = 64

// isAccount reports whether a line is about an account. A client may have the name account: its
// line goes on with a credential, which has a colon.
func isAccount(fields []string) bool {
	return fields[0] == "account" && (len(fields) == 1 || !strings.Contains(fields[1], ":"))
}

// accounts collects what a file says of accounts.
type accounts struct {
	lines       []accountLine
	brokenNames []string       // names whose line has a mistake
	lineOf      map[string]int // the line that an account has
	patterns    map[string]int // the line that has it
}

// take takes a line about an account.
func (a *accounts) take(number int, fields []string) error {
	if len(fields) == 1 {
		return errors.New("the account has no name")
	}
	name := fields[1]
	if !validAccountName(name) {
		return fmt.Errorf("account %q: a name has 1 to %d of the bytes A-Z a-z 0-9 - . _", name, maxAccountName)
	}
	if first := a.lineOf[name]; first != 0 {
		return fmt.Errorf("account %s has a line already, line %d", name, first)
	}
	if a.lineOf == nil {
		a.lineOf, a.patterns = make(map[string]int), make(map[string]int)
	}
	a.lineOf[name] = number
	l, err := parseAccount(name, fields[2:])
	for _, p := range l.tubes {
		if first := a.patterns[p]; err == nil && first != 0 {
			err = fmt.Errorf("the tubes %s are those of the account in line %d", p, first)
		}
	}
	if err == nil && len(a.lines) == maxAccounts {
		err = fmt.Errorf("there are %d accounts before it, and no more are possible", maxAccounts)
	}
	if err != nil {
		a.brokenNames = append(a.brokenNames, name)
		return fmt.Errorf("account %s: %w", name, err)
	}
	for _, p := range l.tubes {
		a.patterns[p] = number
	}
	a.lines = append(a.lines, l)
	return nil
}

func validAccountName(s string) bool {
	foreign := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._", c))
	}
	return s != "" && len(s) <= maxAccountName && !strings.ContainsFunc(s, foreign)
}

// parseAccount reads words and values.
func parseAccount(name string, fields []string) (l accountLine, err error) {
	l.name = name
	limits := map[string]struct {
		value *int64
		parse func(string) (int64, error)
	}{
		"max-jobs":        {&l.limits.Jobs, parseCount},
		"max-memory":      {&l.limits.Memory, parseBytes},
		"max-tubes":       {&l.limits.Tubes, parseCount},
		"max-keys":        {&l.limits.Keys, parseCount},
		"max-connections": {&l.limits.Connections, parseCount},
		"rate":            {&l.limits.Rate, parseRate},
	}
	seen := make(map[string]bool)
	for ; len(fields) > 0; fields = fields[2:] {
		word := fields[0]
		limit, ok := limits[word]
		switch {
		case !ok && word != "tubes":
			return l, fmt.Errorf("unknown word %q; "+
				"give tubes, max-jobs, max-memory, max-tubes, max-keys, max-connections or rate", word)
		case len(fields) == 1:
			return l, fmt.Errorf("%s has no value", word)
		case seen[word]:
			return l, fmt.Errorf("%s is there twice", word)
		case word == "tubes":
			l.tubes, err = parseTubes(fields[1])
			different := slices.Compact(slices.Sorted(slices.Values(l.tubes)))
			if err == nil && len(different) < len(l.tubes) {
				err = fmt.Errorf("%s has the same tubes twice", fields[1])
			}
		default:
			if *limit.value, err = limit.parse(fields[1]); err != nil {
				err = fmt.Errorf("%s %s: %w", word, fields[1], err)
			}
		}
		if err != nil {
			return l, err
		}
		seen[word] = true
	}
	if len(l.tubes) == 0 {
		return l, errors.New("it has no tubes; say which, as in: tubes " + name + "/*")
	}
	return l, nil
}

func parseCount(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, errors.New("not a number; 0 means no limit")
	}
	return int64(n), nil
}

func parseBytes(s string) (int64, error) {
	n, err := quantity.Bytes.Parse(s)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("not a number %v; 0 means no limit", quantity.Bytes)
	}
	return int64(n), nil
}

func parseRate(s string) (int64, error) {
	digits, ok := strings.CutSuffix(s, "/s")
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || n > account.MaxRate {
		return 0, fmt.Errorf("not a number of commands a second of at most %d/s, as 5000/s is; 0/s means no limit",
			account.MaxRate)
	}
	return int64(n), nil
}

// loadAccounts puts in force what a file says of accounts. An account whose line has a mistake
// stays as it was. It returns all of them by name.
func (s *Store) loadAccounts(file *accounts) map[string]*account.Account {
	all := make(map[string]*account.Account)
	var list []account.Tubes
	for _, l := range file.lines {
		a := s.accounts[l.name].Account
		if a == nil {
			a = account.New(l.name, l.limits)
		} else {
			a.SetLimits(l.limits)
		}
		all[l.name] = a
		list = append(list, account.Tubes{Account: a, Tubes: l.tubes})
	}
	for _, name := range file.brokenNames {
		old, ok := s.accounts[name]
		if !ok {
			continue
		}
		all[name] = old.Account
		old.Tubes = slices.DeleteFunc(slices.Clone(old.Tubes), func(p string) bool { return file.patterns[p] != 0 })
		list = append(list, old)
	}
	same := func(x account.Tubes) bool {
		old := s.accounts[x.Account.Name()]
		return old.Account == x.Account && slices.Equal(old.Tubes, x.Tubes)
	}
	if len(list) == len(s.accounts) && !slices.ContainsFunc(list, func(x account.Tubes) bool { return !same(x) }) {
		return all // limits are in force already
	}
	s.accounts = make(map[string]account.Tubes)
	for _, x := range list {
		s.accounts[x.Account.Name()] = x
	}
	s.Accounts.Set(list)
	return all
}

// findAccounts leaves out clients whose account there is not.
func (p *parser) findAccounts(all map[string]*account.Account) {
	p.lines = slices.DeleteFunc(p.lines, func(l line) bool {
		missing := l.account != "" && all[l.account] == nil
		if missing {
			const what = "no account %q; it needs a line of its own, as: account %[1]s tubes %[1]s/*"
			p.mistakes = append(p.mistakes, &FileError{p.path, l.number, fmt.Sprintf(what, l.account)})
		}
		return missing
	})
}
