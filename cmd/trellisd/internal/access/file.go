package access

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trellis/codec"
	"trellis/engine"
)

// A line is what one line of a file says.
type line struct {
	name string
	credential
	rights  engine.Rights
	tubes   []string
	account string // "" for none
	number  int    // of the line, from 1
}

// A credential is how clients are known. Two that are equal let the same clients in.
type credential struct {
	kind  credentialKind
	value string // the hash of a token as bytes, a name in a certificate, or a user's number
}

type credentialKind string

const (
	byToken credentialKind = "sha256:"
	byUser  credentialKind = "uid:"
	byDNS   credentialKind = "cert:DNS:"
	byURI   credentialKind = "cert:URI:"
	byEmail credentialKind = "cert:EMAIL:"
	byIP    credentialKind = "cert:IP:"
	byCN    credentialKind = "cert:CN:"
)

// A FileError is a mistake in a file.
type FileError struct {
	Path string
	Line int // from 1; 0 for the file as a whole
	Text string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Text)
}

// parser reads a file line by line.
type parser struct {
	path     string
	lines    []line // those without a mistake
	accounts accounts
	lineOf   map[credential]int // the line that has it
	mistakes []error            // each a *FileError
}

// parse reads a file's contents. The path is for messages.
func parse(path string, content []byte) *parser {
	p := &parser{path: path, lineOf: make(map[credential]int)}
	number := 0
	for text := range bytes.Lines(content) {
		number++
		fields, err := split(string(text))
		if err == nil && len(fields) > 0 {
			take := p.client
			if isAccount(fields) {
				take = p.accounts.take
			}
			err = take(number, fields)
		}
		if err != nil {
			p.mistakes = append(p.mistakes, &FileError{path, number, err.Error()})
		}
	}
	return p
}

// split returns the fields of a line, none if it says nothing.
func split(text string) ([]string, error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) })
	for i, f := range fields {
		if f[0] == '#' {
			return fields[:i], nil
		}
		for _, c := range []byte(f) {
			if c < '!' || c > '~' {
				return nil, fmt.Errorf("byte 0x%02x in %q; only printable ASCII is allowed", c, f)
			}
		}
	}
	return fields, nil
}

// client takes a line that names clients.
func (p *parser) client(number int, fields []string) (err error) {
	l := line{name: fields[0], number: number}
	if len(fields) == 6 && fields[4] == "account" {
		l.account = fields[5]
		fields = fields[:4]
	}
	if len(fields) != 4 {
		return fmt.Errorf("%d fields; a line has a name, a credential, rights and tubes, "+
			"and may go on with account and a name", len(fields))
	}
	if l.credential, err = parseCredential(fields[1]); err != nil {
		return err
	}
	if l.tubes, err = parseTubes(fields[3]); err != nil {
		return err
	}
	if l.rights, err = parseRights(fields[2], l.tubes); err != nil {
		return err
	}
	if first := p.lineOf[l.credential]; first != 0 {
		return fmt.Errorf("the credential is that of line %d; give each client one of its own", first)
	}
	p.lineOf[l.credential] = number
	p.lines = append(p.lines, l)
	return nil
}

func parseCredential(s string) (credential, error) {
	for _, kind := range []credentialKind{byToken, byUser, byDNS, byURI, byEmail, byIP, byCN} {
		value, ok := strings.CutPrefix(s, string(kind))
		if !ok {
			continue
		}
		var err error
		switch kind {
		case byToken:
			value, err = parseHash(value)
		case byUser:
			value, err = parseUser(value)
		case byDNS:
			value, err = notEmpty(strings.ToLower(value))
		case byIP:
			value, err = parseIP(value)
		default:
			value, err = notEmpty(value)
		}
		if err != nil {
			return credential{}, fmt.Errorf("credential %s: %w", s, err)
		}
		return credential{kind, value}, nil
	}
	return credential{}, fmt.Errorf("unknown credential %s; give sha256:HEX, uid:NUMBER, or cert: "+
		"with DNS:, URI:, EMAIL:, IP: or CN: and a name", s)
}

func parseHash(s string) (string, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != hashSize {
		return "", fmt.Errorf("not %d hexadecimal digits; trellis token new prints the right ones", 2*hashSize)
	}
	return string(b), nil
}

func parseUser(s string) (string, error) {
	// The last number stands for nobody.
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return "", fmt.Errorf("not the number of a user; id -u NAME prints it")
	}
	return strconv.FormatUint(n, 10), nil
}

func parseIP(s string) (string, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return "", fmt.Errorf("not an IP address")
	}
	return a.Unmap().String(), nil
}

func notEmpty(s string) (string, error) {
	if s == "" {
		return "", fmt.Errorf("the name is missing")
	}
	return s, nil
}

var rightsByName = map[string]engine.Rights{
	"put":   engine.RightPut,
	"work":  engine.RightWork,
	"read":  engine.RightRead,
	"all":   engine.RightAll,
	"admin": engine.RightAdmin,
}

// parseRights reads rights to tubes. All rights to all tubes are those to the server too.
func parseRights(s string, tubes []string) (rights engine.Rights, err error) {
	for name := range strings.SplitSeq(s, ",") {
		r, ok := rightsByName[name]
		if !ok {
			return 0, fmt.Errorf("unknown right %q; give put, work, read, all or admin, with commas between several", name)
		}
		if name == "all" && slices.Contains(tubes, "*") {
			r |= engine.RightAdmin
		}
		rights |= r
	}
	return rights, nil
}

func parseTubes(s string) (tubes []string, err error) {
	for t := range strings.SplitSeq(s, ",") {
		name, isPrefix := strings.CutSuffix(t, "*")
		switch {
		case isPrefix && name == "":
		case strings.Contains(name, "*"):
			return nil, fmt.Errorf("no tube can match %q: a * stands at the end, and for any name that begins so", t)
		case !codec.ValidTubeName([]byte(name)):
			return nil, fmt.Errorf("no tube can match %q: names have 1 to %d of the bytes A-Z a-z 0-9 - + / ; "+
				". $ _ ( ) and do not begin with -", t, codec.MaxTubeName)
		case strings.HasPrefix(name, engine.TokenTube):
			return nil, fmt.Errorf("no tube can match %q: names that begin with %s are for tokens", t, engine.TokenTube)
		}
		tubes = append(tubes, t)
	}
	return tubes, nil
}
