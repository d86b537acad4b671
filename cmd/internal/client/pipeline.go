package client

import "context"

// A Command is a line, and a body if it is not nil.
type Command struct {
	Line string
	Body []byte
}

const (
	// Commands in flight. They have to fit into the buffers of the two kernels: a server that
	// waits for its replies to be read does not read commands, and neither side would go on.
	windowCommands = 256
	windowBytes    = 16 << 10
)

// Pipeline sends n commands without waiting for each reply, and hands over every reply, in
// order. It asks for a command only when it is about to send it; by then the replies to much
// earlier ones have been handed over. Extensions need an earlier call of Capabilities, as with
// Queue. After an error from reply no more is sent: the replies to what was sent are read and
// dropped, and Pipeline returns that error.
func (c *Conn) Pipeline(
	ctx context.Context, n int, command func(i int) Command, reply func(i int, r Reply) error,
) error {
	var failed error
	var sizes []int // of the commands in flight
	flying := 0
	for begun, done := 0, 0; done < begun || begun < n && failed == nil; {
		for begun < n && failed == nil && (len(sizes) == 0 || len(sizes) < windowCommands && flying < windowBytes) {
			k := command(begun)
			if failed = c.Queue(ctx, k.Line, k.Body); failed != nil {
				break
			}
			size := len(k.Line) + len(k.Body)
			sizes, flying = append(sizes, size), flying+size
			begun++
		}
		if done == begun {
			break
		}
		if c.in.Buffered() == 0 {
			if err := c.Flush(ctx); err != nil {
				return err
			}
		}
		r, err := c.Next(ctx)
		if err != nil {
			return err
		}
		flying -= sizes[0]
		sizes = sizes[1:]
		if failed == nil {
			failed = reply(done, r)
		}
		done++
	}
	return failed
}
