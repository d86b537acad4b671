// Package quantity writes measured values with their units, and takes the median of several. Package bench and its
// tables of loads use it, and package compare for its tables of servers, so that both write a value alike.
package quantity
