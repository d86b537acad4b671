// Package privilege gives root's rights up for those of a user.
package privilege
