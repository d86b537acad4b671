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
// The rights are put, work, read, all and admin: see [engine.Rights]. All rights to all
// tubes contain admin; all rights to some do not. Tubes are names and
// beginnings of names with a * behind them. Names that begin with auth/ are for tokens, and
// nobody's tubes: otherwise a token that is sent once too often would become the name of a
// tube, which others can see.
//
// # Accounts
//
// Teams that share the server may have accounts, each in a line beside those of clients:
//
//	account acme tubes acme/*,acme2/* max-jobs 1000000 max-memory 2G max-tubes 1000 max-keys 100000 rate 5000/s
//	acme-app sha256:2c26b46b...  put,work  acme/*  account acme
//
// Words and values follow the name in any order; a limit that is not there, or 0, is none. The
// tubes of an account are those that its patterns match better than another account's, whoever
// uses them: see [account.Account]. A client's line may end with account and a name: then its
// connections and commands count there. A client with the name account is no account: its
// line goes on with a credential.
//
// # Tokens
//
// A token is made of 256 random bits, so that its plain hash needs no salt, and no effort
// that would keep an event loop busy. The hash is looked up by its first bytes, and compared
// in constant time. Nobody is locked out for guessing.
//
// # Changes
//
// A file that has changed replaces what was said before. Clients whose line is as it was,
// wherever it stands now, do not notice. The connections of others end, so that no connection
// has rights that the file does not give. A line with a mistake gives none, and keeps no
// other line from what it says: a right that was taken away must not stay because of a slip
// elsewhere in the same edit. For the same reason a file that has become empty admits
// nobody. At the start a file with a mistake, or without a client, is not accepted.
//
// An account whose line has a mistake stays as it was, for as long as its name can be read.
package access
