package compare

import "testing"

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
