package client

import "fmt"

// A State is that of a job, as the protocol names it.
type State string

// The states.
const (
	Ready    State = "ready"
	Reserved State = "reserved"
	Delayed  State = "delayed"
	Buried   State = "buried"
)

// States are all states, in the order in which statistics have them.
var States = []State{Ready, Reserved, Delayed, Buried}

// ParseState returns the state with that name.
func ParseState(name string) (State, error) {
	for _, s := range States {
		if name == string(s) {
			return s, nil
		}
	}
	return "", fmt.Errorf("%q is no state: give ready, reserved, delayed or buried", name)
}
