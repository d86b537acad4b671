// Package privilege gives up root's rights for those of a user, the one of option -u.
//
//	u, err := privilege.Lookup(name) // before the sockets are opened, so that mistakes show early
//	err = u.Become()                 // after what only root may do
//
// Become is for the whole process and for good: user, primary group and supplementary
// groups, of all threads, and it checks that there is no way back. After an error the
// process may have changed in part, and should end.
package privilege
