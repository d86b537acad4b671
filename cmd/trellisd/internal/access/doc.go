// Package access says which clients a server serves and what they may do, as a file says
// that the operator keeps.
//
// # The file
//
// A line names clients, says how they are known and what they may do:
//
//	# name    credential                rights    tubes
//	billing   sha256:9f86d081...        put,work  billing/*
//	ci        cert:DNS:ci.example.org   all       *
//	cron      uid:1000                  put       default,cron/*
//	grafana   sha256:60303ae2...        read      *
//
// The four fields are separated by spaces or tabs. Empty lines, and what follows a # at
// the beginning of a line or behind a space or tab, are for people. Several lines may have
// the same name, as while a token is replaced by another, but no two the same credential.
//
// A credential is the SHA-256 of a token, in hexadecimal digits; the number of the user who
// has opened a connection to a Unix socket; or a name in a certificate that was verified:
// DNS:, URI:, EMAIL: or IP: for one of its subject alternative names, CN: for its common
// name. Where a certificate has several of them, the first line counts.
//
// The rights are put, work, read and all: see [engine.Rights]. Tubes are names and
// beginnings of names with a * behind them. Names that begin with auth/ are for tokens, and
// nobody's tubes: otherwise a token that is sent once too often would become the name of a
// tube, which others can see.
//
// # Tokens
//
// A token is made of 256 random bits, so that its plain hash needs no salt, and no effort
// that would keep an event loop busy. The hash is looked up by its first bytes, and compared
// in constant time. Nobody is locked out for guessing.
//
// # Changes
//
// A file that has changed replaces what was said before as a whole, or not at all. Clients
// whose line is as it was, wherever it stands now, do not notice. The connections of
// others end, so that no connection has rights that the file does not give.
package access
