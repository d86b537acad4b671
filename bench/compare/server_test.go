package compare

import (
	"errors"
	"testing"
)

func TestParseServer(t *testing.T) {
	for in, want := range map[string]Server{
		"a=/x/beanstalkd -l {host} -p {port}":                {"a", "/x/beanstalkd -l {host} -p {port}"},
		"/x/beanstalkd -p {port}":                            {"beanstalkd", "/x/beanstalkd -p {port}"},
		"srv --port={port}":                                  {"srv", "srv --port={port}"},
		"cluster of three=srv {port} {node} {cluster} {dir}": {"cluster of three", "srv {port} {node} {cluster} {dir}"},
	} {
		if got, err := ParseServer(in); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a=", "beanstalkd -p 11300", "x={port} {cluster}", "x={port} {cluster} {node}"} {
		if _, err := ParseServer(in); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestAPortThatAnotherProgramTookIsToldFromAnOptionThatIsNotKnown(t *testing.T) {
	for says, want := range map[string]bool{"bind(): Address already in use": true, "I do not know that option": false} {
		p := new(process)
		if err := p.run([]string{"sh", "-c", "echo '" + says + "'; exit 1"}, nil); err != nil {
			t.Fatal(err)
		}
		err := p.await(t.Context(), "127.0.0.1:0", startTimeout, func() bool { return false })
		if !errors.Is(err, errNoStart) || errors.Is(err, errPortTaken) != want {
			t.Errorf("%q: got %v", says, err)
		}
	}
}
