// Package certs has the server's certificate, its key and the authorities of its clients,
// from PEM files that may change.
//
//	store := certs.New(certs.Files{Cert: "server.pem", Key: "server.key"}, certs.Policy{}, log)
//	files, err := reload.Load("tls", store.Paths(), store.Load, log)
//	...
//	defer reload.Watch(files)()
//	err = srv.ServeTLS(listener, store.Config())
//
// # Generations
//
// What is loaded together is a generation: one tls.Config, which does not change. A
// handshake takes the newest. Of connections that stand, those whose client's certificate it does
// not accept are to be ended: see [Store.Rejected]. When a generation
// cannot be loaded the one before stays, and package reload tries again, so that a key
// which is written after its certificate is no trouble.
//
// # Invariants
//
//   - A certificate is served only with the key that belongs to it, and not before or
//     after its time when it is loaded.
//   - A client whose certificate the newest authorities do not accept is refused, also
//     when it resumes a session that began when they did: the certificate is verified
//     again each time.
//   - Tickets outlive generations: clients resume after a certificate was renewed. Their
//     keys are made by crypto/tls, one each day, and forgotten after seven.
//   - TLS 1.2 is spoken with forward secrecy and authenticated encryption only.
//
// # Limits
//
// Revocation lists and OCSP are not looked at: use certificates that expire soon, or take
// their names out of the file that gives them rights. Encrypted keys are not read.
package certs
