package reactor

import (
	"strings"
	"testing"
)

// A server that asks for no token is sent one by mistake: nobody is shown it, and whoever reads
// the log learns of the mistake.
func TestATokenThatIsSentToAServerWithoutAccessControlIsNotShown(t *testing.T) {
	t.Parallel()
	ts := serveConfig(t, "tcp", hooks{}, nil, func(c *Config) { c.Extensions = true })
	c := ts.dial()
	token := "tr_" + strings.Repeat("Sx", 21) + "_"
	c.do("use auth/"+token+"\r\nlist-tube-used\r\n", "BAD_FORMAT\r\nUSING default\r\n")
	c.do("put 0 0 9 1\r\na\r\nmove-job 1 auth/"+token+"\r\n", "INSERTED 1\r\nBAD_FORMAT\r\n")
	c.do("list-tubes\r\n", "OK 14\r\n---\n- default\n\r\n")
	log := ts.log.String()
	if !strings.Contains(log, "level=WARN") || !strings.Contains(log, c.LocalAddr().String()) || strings.Contains(log, token) {
		t.Errorf("the log says %q", log)
	}
}
