// Package servertest runs trellisd as a process for tests, and is a client of it. Only tests use it.
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
//	s := servertest.Start(t, "-b", t.TempDir())
//	c := s.Dial(0)
//	c.Send("put 0 0 60 1", "x")
//	c.Want("INSERTED 1")
//
// Whatever a test starts ends with it. Functions that have a test, and methods of what belongs to one, fail
// it where they cannot do what they say; they may be called on the test's goroutine alone, unless they
// return an error. What should happen at once may take [Patience].
package servertest
