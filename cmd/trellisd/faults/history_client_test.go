package faults

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// hasty and patient are how long clients wait for a reply before they try the next
	// address. A node that is stopped or cut off keeps replies back: hasty clients go on at
	// its successor, and patient ones are still there to see what it says when it is back. At a
	// member that lives these keep their sessions, which have no end then.
	hasty   = time.Second
	patient = 15 * time.Second

	// pause is how long a client waits when no address has served it.
	pause = 10 * time.Millisecond
)

// Client is a stock client that uses and watches one tube: it has one connection, and
// when that is lost it tries the addresses in turn. It records what it does. It is for one
// goroutine.
type Client struct {
	rec    *Recorder
	tube   string
	addrs  func() []string // client addresses of all nodes
	waits  time.Duration   // for a reply
	rests  time.Duration   // between commands, at most
	opens  time.Duration   // for a connection, and again for the replies to its first commands
	dozes  time.Duration   // before it reads the replies to the commands that it sends next
	leaves bool            // it half-closes behind these
	limit  uint32          // attempts after which jobs of the tube are dead letters; 0 is never
	linger time.Duration   // for which jobs stay reserved whose worker has lost its connection; 0 is not at all
	bounds Bounds          // of the tube
	late   bool            // nobody else does anything, and all that was due has happened
	turn   int             // index of the address to try next, modulo their number

	conn    net.Conn // nil if there is none
	addr    string   // that it is connected to
	in      *bufio.Reader
	session int
	// When the last command was called that had a reply; but a leader refuses a put without asking whether it still leads.
	alive int64
	holds []uint64
	left  []uint64 // of jobs that linger: what sessions before this one held

	lost int   // commands without a reply
	why  error // of the last one
}

// NewClient makes a client of a tube, which connects when it has something to do. addrs
// is asked each time.
func (r *Recorder) NewClient(tube string, addrs func() []string) *Client {
	return &Client{rec: r, tube: tube, addrs: addrs, waits: hasty, opens: hasty}
}

// Holds are the ids that the client has reserved in its session. The slice is the
// client's.
func (c *Client) Holds() []uint64 { return c.holds }

// Lost is how many commands had no reply.
func (c *Client) Lost() int { return c.lost }

// Connect has the client connected; ctx ends the attempts.
func (c *Client) Connect(ctx context.Context) error {
	for c.conn == nil {
		addrs := c.addrs()
		for range addrs {
			addr := addrs[c.turn%len(addrs)]
			if c.dial(ctx, addr) == nil {
				return nil
			}
			c.turn++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.rec.Pause):
		}
	}
	return nil
}

// dial connects to an address and sets the tube. That is answered by a node that serves,
// or that believes it does.
func (c *Client) dial(ctx context.Context, addr string) error {
	conn, err := c.rec.dial(ctx, addr, c.opens)
	if err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	err = conn.SetDeadline(time.Now().Add(c.opens))
	if err == nil {
		_, err = fmt.Fprintf(conn, "use %s\r\nwatch %s\r\nignore default\r\n", c.tube, c.tube)
	}
	for _, want := range []string{"USING " + c.tube, "WATCHING 2", "WATCHING 1"} {
		var line string
		if err == nil {
			line, err = in.ReadString('\n')
		}
		if err == nil && strings.TrimRight(line, "\r\n") != want {
			err = fmt.Errorf("the reply is %q, not %q", line, want)
		}
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c.conn, c.addr, c.in, c.session, c.alive, c.holds = conn, addr, in, c.rec.session(), c.rec.now(), nil
	return nil
}

// dial connects to an address within that time.
func (r *Recorder) dial(ctx context.Context, addr string, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if r.Dial != nil {
		return r.Dial(ctx, addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// Close ends the connection.
func (c *Client) Close() {
	if c.conn == nil {
		return
	}
	_ = c.conn.Close() // what it had to say was read
	c.rec.ended(c.session, c.alive)
	if c.linger > 0 {
		c.left = append(c.left, c.holds...)
	}
	c.conn, c.holds = nil, nil
}

// ErrLost tells that no reply has come: the connection is closed, and whether the command
// was executed is open.
var ErrLost = errors.New("the connection was lost")

// ErrNoRoom tells that a job that is there was left as it is, for want of room, or because a disk that hangs has its body.
// That is no part of the history.
var ErrNoRoom = errors.New("there is no room for what the command would change")

// SetTube has the client use and watch another tube.
func (c *Client) SetTube(tube string) error {
	old := c.tube
	c.tube = tube
	return c.say(fmt.Sprintf("use %s\r\nwatch %s\r\nignore %s\r\n", tube, tube, old), "USING "+tube, "WATCHING 2", "WATCHING 1")
}

// say sends commands that are no part of the history and wants these replies. Its error is ErrLost,
// or tells of another reply.
func (c *Client) say(commands string, want ...string) error {
	if c.conn == nil {
		return ErrLost
	}
	called := c.rec.now()
	err := c.conn.SetDeadline(time.Now().Add(c.waits))
	if err == nil {
		_, err = io.WriteString(c.conn, commands)
	}
	for _, want := range want {
		var line string
		if err == nil {
			line, err = c.in.ReadString('\n')
		}
		if err == nil && strings.TrimRight(line, "\r\n") != want {
			return fmt.Errorf("a reply is %q, not %q", line, want)
		}
	}
	if err != nil {
		c.lose(err)
		return ErrLost
	}
	c.alive = called
	return nil
}

// lose ends a connection that the server has ended.
func (c *Client) lose(why error) {
	c.lost++
	c.why = why
	c.Close()
}

// Put puts a job and returns its id, or 0 if the server has refused it for want of room.
func (c *Client) Put(pri, delay uint32, size int) (uint64, error) {
	return c.put(Op{Pri: pri, Delay: delay}, size, "")
}

// PutGrouped puts a job that is a member of the group of that number, or that waits until none of these is left.
func (c *Client) PutGrouped(group int, waits bool, pri, delay uint32, size int) (uint64, error) {
	name := fmt.Sprintf("%s-%d", c.rec.name, group)
	if waits {
		return c.put(Op{After: name, Pri: pri, Delay: delay}, size, " aft:"+name)
	}
	return c.put(Op{Group: name, Pri: pri, Delay: delay}, size, " grp:"+name)
}

// PutLimited puts a job with a limited key: at most so many jobs of that number are reserved
// in a tube at a time when this one is.
func (c *Client) PutLimited(key int, most, pri, delay uint32, size int) (uint64, error) {
	name := fmt.Sprintf("%s-%d", c.rec.name, key)
	return c.put(Op{Limited: name, Most: most, Pri: pri, Delay: delay}, size, fmt.Sprintf(" con:%s:%d", name, most))
}

func (c *Client) put(o Op, size int, tags string) (uint64, error) {
	n := c.rec.number()
	o.Linger, o.Bounds = c.linger, c.bounds
	o.Verb, o.Number, o.Limit, o.TTR, o.Body = Put, n, c.limit, longTTR+uint32(n%100), bodyOf(n, size)
	o, err := c.do(o, fmt.Sprintf("put %d %d %d %d%s\r\n%s", o.Pri, o.Delay, o.TTR, len(o.Body), tags, o.Body))
	return o.ID, err
}

// PutAll puts jobs with a time to run, all in one write.
func (c *Client) PutAll(ttr time.Duration, sizes ...int) error {
	var text strings.Builder
	ops := make([]Op, len(sizes))
	for i, size := range sizes {
		n := c.rec.number()
		ops[i] = Op{Verb: Put, Number: n, TTR: uint32(ttr.Seconds()), Body: bodyOf(n, size)}
		fmt.Fprintf(&text, "put 0 0 %d %d\r\n%s\r\n", ops[i].TTR, len(ops[i].Body), ops[i].Body)
	}
	err := c.doAll(ops, text.String())
	for i := 1; err == nil && i < len(ops); i++ {
		if ops[i].ID <= ops[i-1].ID {
			err = fmt.Errorf("jobs %d and %d were put one after the other", ops[i-1].ID, ops[i].ID)
		}
	}
	return err
}

// PutKeyed puts a job with a unique key that outlives it, or finds the one that has the key. A number
// that was used before has the same key, and all else is the same.
func (c *Client) PutKeyed(number, size int) (uint64, error) {
	o := Op{Verb: Put, Keyed: true, Number: number, Pri: leastPri, TTR: longTTR + uint32(number%100), Body: bodyOf(number, size)}
	o, err := c.do(o, fmt.Sprintf("put %d 0 %d %d idp:%s-%d:%d\r\n%s", o.Pri, o.TTR, len(o.Body), c.rec.name, number, longTTR, o.Body))
	return o.ID, err
}

// leastPri is less urgent than any other priority here, so that a put that finds a job does
// not change its priority.
const leastPri = 10

// Move moves a job to another tube.
func (c *Client) Move(id uint64, to string) error {
	_, err := c.do(Op{Verb: MoveJob, ID: id, To: to}, fmt.Sprintf("%s %d %s", MoveJob, id, to))
	return err
}

// Flush deletes all jobs of the tube.
func (c *Client) Flush() error {
	_, err := c.do(Op{Verb: Flush}, fmt.Sprintf("%s %s", Flush, c.tube))
	return err
}

// SetDeadLetters has jobs of the tube become dead letters after so many attempts. That is no
// part of the history: it must have been answered before the first job is put, and is never undone.
func (c *Client) SetDeadLetters(ctx context.Context, limit uint32) error {
	reply, err := c.ask(ctx, fmt.Sprintf("set-dlq %s %d %s", c.tube, limit, DeadTube(c.tube)))
	if reply == "OUT_OF_MEMORY" {
		return ErrNoRoom
	}
	if err == nil && reply != "DLQ_SET" {
		err = fmt.Errorf("the reply to set-dlq is %q", reply)
	}
	if err == nil {
		c.limit = limit
	}
	return err
}

// Linger has jobs of the tube linger.
func (c *Client) Linger(ctx context.Context, d time.Duration) error {
	c.linger = d
	return c.set(ctx, fmt.Sprintf("linger=%d", d/time.Second))
}

// Bound has the jobs of the tube be worked on within bounds.
func (c *Client) Bound(ctx context.Context, b Bounds) error {
	c.bounds = b
	if b.Apart == 0 {
		return c.set(ctx, fmt.Sprintf("max-reserved=%d rate=0", b.Reserved))
	}
	return c.set(ctx, fmt.Sprintf("max-reserved=%d rate=1/%d burst=1", b.Reserved, b.Apart/time.Second))
}

// set changes the tube's setting. It tries again while a member cannot read that, or there is no room for it. That is
// no part of the history, as SetDeadLetters is none.
func (c *Client) set(ctx context.Context, pairs string) error {
	for ctx.Err() == nil {
		reply, err := c.ask(ctx, fmt.Sprintf("set-tube %s %s", c.tube, pairs))
		switch {
		case err != nil:
			return err
		case reply == "TUBE_SET":
			return nil
		case reply != "OUT_OF_MEMORY":
			return fmt.Errorf("the reply to set-tube is %q", reply)
		}
		time.Sleep(c.rec.Pause)
	}
	return ctx.Err()
}

// AwaitUnreserved waits until no job of the tube is reserved, which is soon after their
// clients have gone. It is no part of the history.
func (c *Client) AwaitUnreserved(ctx context.Context) error {
	for {
		stats, err := c.ask(ctx, "stats-tube "+c.tube)
		if err != nil {
			return fmt.Errorf("jobs of %s are reserved: %w", c.tube, err)
		}
		if strings.Contains(stats, "\ncurrent-jobs-reserved: 0\n") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("jobs of %s stay reserved: %w", c.tube, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// ask sends a command that is no part of the history, again and again until it has a reply,
// and returns that, or the body that the reply announces. A body that no server may send is an
// error, too.
func (c *Client) ask(ctx context.Context, command string) (string, error) {
	for {
		if err := c.Connect(ctx); err != nil {
			return "", err
		}
		reply, wrong, err := c.exchange(command)
		if err == nil {
			return reply, wrong
		}
		c.lost++
		c.Close()
	}
}

// again does something until there is a reply.
func (c *Client) again(ctx context.Context, do func() error) error {
	for {
		if err := c.Connect(ctx); err != nil {
			return err
		}
		if err := do(); !errors.Is(err, ErrLost) {
			return err
		}
	}
}

func (c *Client) exchange(command string) (reply string, wrong, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.waits)); err != nil {
		return "", nil, err
	}
	if _, err := io.WriteString(c.conn, command+"\r\n"); err != nil {
		return "", nil, err
	}
	line, err := c.in.ReadString('\n')
	if f := strings.Fields(line); err == nil && len(f) == 2 && f[0] == "OK" {
		return c.body(f)
	}
	return strings.TrimSpace(line), nil, err
}

// longTTR, in seconds, does not end during a test.
const longTTR = 100_000

// PutBrief puts a job that may be worked on for this time only, and that expires, unless that is 0.
func (c *Client) PutBrief(ttr, expires time.Duration, size int) (uint64, error) {
	n := c.rec.number()
	o := Op{Verb: Put, Number: n, TTR: uint32(ttr.Seconds()), Expires: expires, Body: bodyOf(n, size)}
	tag := ""
	if expires > 0 {
		tag = fmt.Sprintf(" exp:%d", expires/time.Second)
	}
	o, err := c.do(o, fmt.Sprintf("put 0 0 %d %d%s\r\n%s", o.TTR, len(o.Body), tag, o.Body))
	return o.ID, err
}

// Reserve reserves any ready job of the tube, or none: then it returns 0.
func (c *Client) Reserve() (uint64, error) {
	o, err := c.do(Op{Verb: Reserve}, string(Reserve))
	return o.ID, err
}

// ReserveWithin reserves a job of the tube, for which it waits so many seconds, or none: then it
// returns 0.
func (c *Client) ReserveWithin(seconds int) (uint64, error) {
	ops := []Op{{Verb: Reserve, Wait: time.Duration(seconds) * time.Second}}
	err := c.doAll(ops, fmt.Sprintf("reserve-with-timeout %d\r\n", seconds))
	return ops[0].ID, err
}

// ReserveBatch reserves up to two jobs of the tube, as far as there are some, and returns them.
func (c *Client) ReserveBatch() (ids []uint64, err error) {
	if c.conn == nil {
		return nil, ErrLost
	}
	const most = 2
	called := c.rec.now()
	err = c.conn.SetDeadline(time.Now().Add(c.waits))
	if err == nil {
		_, err = fmt.Fprintf(c.conn, "reserve-batch %d\r\n", most)
	}
	n := 0
	if err == nil {
		var line string
		if line, err = c.in.ReadString('\n'); err == nil {
			if line == "INTERNAL_ERROR\r\n" {
				return nil, ErrNoRoom
			}
			_, wrong := fmt.Sscanf(line, "RESERVED_BATCH %d\r\n", &n)
			if line != "DEADLINE_SOON\r\n" && wrong != nil || n > most {
				return nil, fmt.Errorf("the reply to reserve-batch is %q", line)
			}
		}
	}
	var wrong error
	for i := range most {
		o := Op{Session: c.session, Verb: Reserve, Tube: c.tube, Call: called, Return: never}
		if err == nil && i < n {
			var w error
			w, err = c.read(&o)
			wrong = errors.Join(wrong, w)
		}
		if err != nil {
			o.Reply, o.Body, o.ID = "", "", 0
		} else {
			o.Return = c.rec.now() // without a reply, it may have had a job whose time has ended
		}
		c.rec.add(o)
		if c.hold(&o); o.ID != 0 {
			ids = append(ids, o.ID)
		}
	}
	if err != nil {
		c.lose(err)
		return ids, ErrLost
	}
	c.alive = called
	return ids, wrong
}

// flood has the client look at a job so often, all in one write, and not read for a while. That is no part of the
// history.
func (c *Client) flood(id uint64, times int, dozes time.Duration) error {
	if c.conn == nil {
		return ErrLost
	}
	called := c.rec.now()
	err := c.conn.SetDeadline(time.Now().Add(dozes + c.waits))
	if err == nil {
		_, err = io.WriteString(c.conn, strings.Repeat(fmt.Sprintf("%s %d\r\n", Peek, id), times))
	}
	time.Sleep(dozes)
	var wrong error
	for i := 0; i < times && err == nil; i++ {
		var w error
		w, err = c.read(&Op{Verb: Peek, ID: id})
		wrong = cmp.Or(wrong, w)
	}
	if err != nil {
		c.lose(err)
		return ErrLost
	}
	c.alive = called
	return wrong
}

// Release releases a job, without a delay or with one that does not end during a test.
func (c *Client) Release(id uint64, pri, delay uint32) error {
	_, err := c.do(Op{Verb: Release, ID: id, Pri: pri, Delay: delay}, fmt.Sprintf("release %d %d %d", id, pri, delay))
	return err
}

// Bury buries a job.
func (c *Client) Bury(id uint64, pri uint32) error {
	_, err := c.do(Op{Verb: Bury, ID: id, Pri: pri}, fmt.Sprintf("bury %d %d", id, pri))
	return err
}

// Job does what a verb says to a job: ReserveJob, Touch, KickJob, Delete, Peek or
// StatsJob. It returns the command and its reply.
func (c *Client) Job(verb Verb, id uint64) (Op, error) {
	return c.do(Op{Verb: verb, ID: id}, fmt.Sprintf("%s %d", verb, id))
}

// Look does a peek of the tube.
func (c *Client) Look(verb Verb) error {
	_, err := c.do(Op{Verb: verb}, string(verb))
	return err
}

// do sends a command, waits for its reply and records both. Its errors are ErrLost, and
// replies that no server may give.
func (c *Client) do(o Op, text string) (Op, error) {
	ops := []Op{o}
	err := c.doAll(ops, text+"\r\n")
	return ops[0], err
}

// doAll sends commands at once, and fills in what came of them.
func (c *Client) doAll(ops []Op, text string) error {
	if c.conn == nil {
		return ErrLost
	}
	called := c.rec.now()
	limit := c.waits
	for i := range ops {
		o := &ops[i]
		o.Session, o.Tube, o.Call, o.Return, o.Late = c.session, c.tube, called, never, c.late
		limit += o.Wait
	}
	limit += c.dozes
	err := c.conn.SetDeadline(time.Now().Add(limit))
	if err == nil {
		_, err = io.WriteString(c.conn, text)
	}
	if c.leaves && err == nil {
		err = c.conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	if c.dozes > 0 {
		time.Sleep(c.dozes)
	}
	leaves := c.leaves
	c.leaves, c.dozes = false, 0
	if leaves {
		// The session may end before its last replies have come. If they are lost with the leader, what has changed
		// nothing is executed anew, in a session that holds nothing. So is a reserve, of which others may have seen that
		// it had a job until then.
		c.rec.ended(c.session, called)
	}
	var wrong error
	for i := range ops {
		o := &ops[i]
		if err == nil {
			var w error
			w, err = c.read(o)
			wrong = errors.Join(wrong, w)
			if w == ErrNoRoom {
				continue
			}
		}
		if err != nil {
			o.Reply, o.Body, o.Stats = "", bodyIfPut(o), nil
			if o.Verb.ofTube() {
				o.ID = 0
			}
			c.rec.add(*o)
			continue
		}
		o.Return = c.rec.now()
		if o.Reply != "OUT_OF_MEMORY" {
			c.alive = called
		}
		if leaves && o.Verb == Reserve { // the reply that was lost may have been of another job
			lost := *o
			lost.ID, lost.Reply, lost.Body = 0, "", ""
			c.rec.add(lost)
		}
		c.rec.add(*o)
		c.hold(o)
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && c.waits >= patient && c.rec.Silent != nil {
			c.rec.Silent(c.addr, limit)
		}
		c.lose(err)
		return ErrLost
	}
	if leaves {
		c.Close()
	}
	return wrong
}

func bodyIfPut(o *Op) string {
	if o.Verb == Put {
		return o.Body
	}
	return ""
}

// hold keeps account of what the client has reserved.
func (c *Client) hold(o *Op) {
	switch {
	case o.Reply == "RESERVED", o.Reply == "TOUCHED" && !slices.Contains(c.holds, o.ID):
		c.holds = append(c.holds, o.ID)
	case o.Verb == Release, o.Verb == Bury, o.Verb == Delete, o.Reply == "MOVED", o.Verb == Touch && o.Reply == "NOT_FOUND":
		c.holds = slices.DeleteFunc(c.holds, func(id uint64) bool { return id == o.ID })
	}
}

// replies are those that the model knows, beside refusals.
var replies = map[Verb]string{
	Put: "INSERTED", Reserve: "RESERVED", ReserveJob: "RESERVED", Release: "RELEASED", Bury: "BURIED", Touch: "TOUCHED",
	KickJob: "KICKED", MoveJob: "MOVED", Flush: "FLUSHED", Delete: "DELETED", Peek: "FOUND", PeekReady: "FOUND", PeekDelayed: "FOUND", PeekBuried: "FOUND", StatsJob: "OK",
}

// read reads a reply into o. wrong tells of one that no server may give.
func (c *Client) read(o *Op) (wrong, err error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	f := strings.Fields(line)
	if len(f) == 0 {
		return fmt.Errorf("the reply to %s is an empty line", o.Verb), nil
	}
	o.Reply = f[0]
	switch {
	case refused(o) && o.Verb != Put && (o.Reply == "NOT_FOUND") == (o.Verb != Reserve), o.Verb == Put && o.Reply == "OUT_OF_MEMORY":
		return nil, nil
	case o.Reply == "INTERNAL_ERROR": // a disk that hangs keeps the body back
		return ErrNoRoom, nil
	case o.Reply == "OUT_OF_MEMORY" && (o.Verb == Release || o.Verb == Bury || o.Verb == KickJob || o.Verb == MoveJob || o.Verb == ReserveJob):
		return ErrNoRoom, nil
	case o.Reply != replies[o.Verb]:
		return fmt.Errorf("the reply to %s is %q", o.Verb, line), nil
	}
	switch o.Reply {
	case "INSERTED":
		if o.Keyed && len(f) == 3 {
			o.Found = f[2]
		} else if len(f) != 2 {
			return fmt.Errorf("the reply to %s is %q", o.Verb, line), nil
		}
		o.ID, wrong = strconv.ParseUint(f[1], 10, 64)
	case "RESERVED", "FOUND":
		var id uint64
		if len(f) == 3 {
			id, wrong = strconv.ParseUint(f[1], 10, 64)
		}
		if o.ID != 0 && o.ID != id {
			return fmt.Errorf("the reply to %s %d is %q", o.Verb, o.ID, line), nil
		}
		o.ID = id
		var wrongBody error
		o.Body, wrongBody, err = c.body(f)
		wrong = errors.Join(wrong, wrongBody)
	case "OK":
		var text string
		text, wrong, err = c.body(f)
		if wrong == nil && err == nil {
			o.Stats, wrong = parseStats(text)
		}
	}
	return wrong, err
}

// body reads the body that a reply announces in its last field. wrong tells of one that no
// server may send.
func (c *Client) body(f []string) (text string, wrong, err error) {
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil || n < 0 || n > 1<<24 {
		return "", fmt.Errorf("a reply announces a body: %q", f), nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return "", nil, err
	}
	if string(b[n:]) != "\r\n" {
		return "", fmt.Errorf("the body behind %q does not end where it should", f), nil
	}
	return string(b[:n]), nil, nil
}

// parseStats reads what stats-job says.
func parseStats(text string) (*Stats, error) {
	x := &Stats{}
	numbers := map[string]*uint32{
		"pri": &x.Pri, "delay": &x.Delay, "ttr": &x.TTR, "releases": &x.Releases, "buries": &x.Buries, "kicks": &x.Kicks,
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case key == "state":
			x.State = value
		case key == "tube":
			x.Tube = strings.Trim(value, `"`)
		case numbers[key] != nil:
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("stats-job says %q", line)
			}
			*numbers[key] = uint32(n)
		}
	}
	return x, nil
}
