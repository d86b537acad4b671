// Package member says who a node of a cluster is.
package member
