// Package assistant lets programs that help operators, such as assistants and editors, look at servers and change
// them over the Model Context Protocol. It offers what package operate has; the server checks a token's rights.
//
// Tools only read unless the configuration allows writing. What changes jobs names them by ids, or by a tube, a state
// and a count; all of a tube's jobs need a confirmation. Lists and bodies are bounded. Bodies, and names that clients
// have chosen, are marked as data of strangers: they may have been written to be taken for orders.
package assistant
