package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"trellis/binlog"
	"trellis/cmd/trellisd/internal/listen"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/privilege"
	"trellis/engine"
	"trellis/reactor"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the process from its command line to its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	opt, err := options.Parse(args, os.Environ())
	for _, notice := range opt.Notices {
		say(stderr, opt, slog.LevelWarn, notice)
	}
	if err == nil {
		switch opt.Action {
		case options.PrintVersion:
			fmt.Fprintln(stdout, versionLine())
		case options.PrintUsage:
			io.WriteString(stderr, options.Usage())
		case options.PrintManual:
			io.WriteString(stdout, options.Manual())
		case options.CheckConfig:
			mistakes := checkConfig(opt)
			for _, m := range mistakes {
				say(stderr, opt, slog.LevelError, m.Error())
			}
			showCheck(stdout, opt, mistakes)
			return exitCode(errors.Join(mistakes...))
		case options.Serve:
			err = serve(opt, newLogger(stderr, opt))
		}
	} else {
		err = exitWith(exitUsage, err)
	}
	if err != nil {
		say(stderr, opt, slog.LevelError, err.Error())
	}
	return exitCode(err)
}

// serve runs the server until it is told to stop. A nil error means that it was told
// to, and stopped in order or had served nobody yet.
func serve(opt *options.Options, log *slog.Logger) error {
	// A signal during the start ends in order too.
	sigs := catchSignals()
	defer sigs.release()
	log.Info("starting", "pid", os.Getpid(), "version", version)
	if err := fixMemory(opt, metrics.MemoryLimit); err != nil {
		return exitWith(exitUsage, err)
	}
	for _, s := range opt.Settings() {
		log.Info("option", "name", s.Name, "value", s.Value, "from", s.From)
	}
	if opt.Cluster.Member() {
		return serveMember(opt, sigs, log)
	}

	sock, err := openSockets(opt, log)
	if err != nil {
		return exitWith(exitListen, err)
	}
	defer sock.close(log)
	return sigs.during(func() error { return serveOn(sock, opt, sigs, log) }, log)
}

// serveOn runs the server on open sockets.
func serveOn(sock *sockets, opt *options.Options, sigs *signals, log *slog.Logger) (err error) {
	mon, err := openMonitor(opt, log)
	if err != nil {
		return exitWith(exitListen, err)
	}
	defer mon.close(log)
	info, err := newInfo()
	if err != nil {
		return err
	}
	if err := changeUser(opt.User, sock.all(), log); err != nil {
		return err
	}
	if mon.audit, err = openAudit(opt, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mon.audit.Close()) }()
	certs, acc, err := loadFiles(opt, sock, mon, log)
	if err != nil {
		return err
	}

	// The binlog is locked and replayed as the new user, with the sockets open and
	// before anybody is served.
	chooseSegmentSize(opt)
	mon.serve(opt, log)
	bl, err := openBinlog(opt, mon, log)
	if err != nil {
		return err
	}
	collectSoon()
	limitHeap(opt)
	start, now := newClock()
	files := newReloads(certs, acc, mon.protection, sigs, log)
	ec := engineConfig(opt, acc, info)
	ec.Start, ec.Audit, ec.Reload = start, mon.audit.Command, files.answer
	bodies := &evictor{bell: make(chan struct{}, 1), limit: opt.BodyMemory}
	ec.Crowded = bodies.ring
	rc := reactorConfig(opt, log)
	rc.Now = now
	spare := spareOfServer
	if bl != nil && opt.Sync == binlog.SyncAlways {
		spare = spareOfSyncedServer
	}
	spareProcs(rc.Loops, spare)
	var logFailed chan error
	if bl != nil {
		defer func() { err = errors.Join(err, bl.end()) }()
		ec.Journal, rc.Journal, logFailed = bl, bl, bl.failed
	}
	eng := engine.New(ec)
	defer watchWallClock(eng, start, now, log)()
	if bl != nil {
		if err := bl.restore(eng, now, log); err != nil {
			return err
		}
	}
	rc.Engine = eng
	if acc != nil {
		rc.Access = acc
	}
	srv, err := reactor.New(rc)
	if err != nil {
		return fmt.Errorf("starting the event loops: %w", err)
	}
	if bl != nil {
		if err := bl.start(eng, srv); err != nil {
			return errors.Join(err, stop(srv, nil, log))
		}
		if opt.BodyMemory > 0 {
			bodies.eng, bodies.log = eng, bl.Log
			mon.bodies.Store(bodies)
			defer evictBodies(bodies)()
		}
	}
	serves(certs, acc, srv)
	defer files.watch()()
	mon.shows(&metrics.Serving{Engine: eng, Now: now, Reactor: srv}, srv)
	return supervise(eng, srv, sock, certs, logFailed, &mon.ready, opt.StopDelay, sigs, log)
}

func limits(opt *options.Options) engine.Limits {
	return engine.Limits{
		Memory: opt.MaxMemory, Bodies: opt.BodyMemory,
		Tubes: opt.MaxTubes, Watched: opt.MaxWatched, Keys: opt.MaxKeys, KeySeconds: opt.MaxKeyTTL,
	}
}

// changeUser makes the process one of the user of that name; an empty name changes nothing.
// Files of UNIX sockets become that user's too: to root's, nobody but root could connect.
func changeUser(name string, listeners []net.Listener, log *slog.Logger) error {
	if name == "" {
		return nil
	}
	user, err := privilege.Lookup(name)
	switch {
	case errors.Is(err, privilege.ErrUnknownUser):
		return exitWith(exitUnknownUser, err)
	case err != nil:
		return exitWith(exitUserLookup, err)
	}
	if os.Geteuid() == 0 {
		err = listen.Chown(listeners, user.UID, user.GID)
	}
	if err == nil {
		err = user.Become()
	}
	if err != nil {
		return exitWith(exitChangeUser, err)
	}
	log.Info("changed user", "user", name, "uid", os.Getuid(), "gid", os.Getgid())
	return nil
}
