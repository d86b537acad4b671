// Package codec is the wire format of the beanstalkd protocol: a [Decoder] that
// turns the bytes of one connection into [Command] values, and appenders that
// write replies.
//
// # Decoding
//
// The decoder is incremental. It takes whatever a read brought, hands out one
// command at a time and never asks for bytes to be kept for it: what it cannot
// decode yet it remembers itself. The commands that come out do not depend on
// how the input was cut, with one exception that saves a copy: a put whose body
// is wholly in hand comes as one [OpPut], any other put as an [OpPutBegin], any
// number of [OpPutChunk] and an [OpPutEnd], which mean the same.
//
// A line that lies wholly in the input is parsed where it lies. Only a line
// that the input cuts in two is copied, into a buffer of [MaxLine] bytes that
// comes from a pool and goes back to it when the line has been used; a
// connection between two lines owns no memory but the Decoder.
//
// # The language
//
// Commands, arguments and the precedence of errors are those of beanstalkd's
// development branch (later than 1.13), including what it tolerates: anything
// may follow quit, pause-tube needs no space before its tube, kick takes a
// number as C's strtoul does and cuts it to 32 bits, and kick and
// reserve-with-timeout ignore what follows their number. A line with a NUL byte
// is malformed whatever else it says.
//
// Two defects of beanstalkd are left out on purpose. A line ends at its first
// CR LF, also when another CR came before it, and an over-long line ends at its
// first CR LF wherever that falls; beanstalkd swallows the commands behind such
// lines.
//
// Two lines that beanstalkd does not know mean something here. auth offers a token
// ([OpAuth]), and is unknown where no token is asked for. A line that ends in
// " HTTP/1.0" or " HTTP/1.1", however long it is, begins an HTTP request ([OpHTTP]): a
// page in a browser can have the browser send one whose later lines are commands, which
// must not be executed. Between the first word of a request and its version stands a
// path, so that "use HTTP/1.1" is none: it names a tube.
//
// With [Decoder.Extensions], commands that beanstalkd does not have are known by their whole words, tags may stand
// behind the size of a put ([Tags]), and a weight behind the name in a watch. A malformed put whose fifth word begins
// as a tag does, with letters and a colon, takes its body along, and so does one whose line is too long: what stands
// behind the colon, and the body, may be written by strangers. The body behind any other malformed put runs as
// commands, as with beanstalkd.
//
// # Limits
//
// A line has at most [MaxLine] bytes with its CR LF. A longer one is dropped as
// it arrives, without being stored, and answered once, at its end. A tube's name
// has at most [MaxTubeName] bytes. A body has at most [Decoder.MaxJobSize]
// bytes; a bigger one is dropped as it arrives. Sizes up to 2^32-1 are counted
// off correctly.
//
// The package does no I/O and starts no goroutine. A Decoder belongs to whoever
// owns its connection and must not be used by two goroutines at once. Nothing
// here allocates, except the pool when it has no line buffer left and an
// appender when its slice has no room, a put with tags, and a set-tube.
package codec
