package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	peerwire "trellis/binlog/replica/wire"
	"trellis/cmd/trellisd/internal/listen"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
)

// checkConfig returns what is wrong with a command line, which has been read, and with the
// files that it names. It reads them as the user of -u, opens no socket and leaves the binlog
// alone.
func checkConfig(opt *options.Options) (mistakes []error) {
	log := slog.New(slog.DiscardHandler) // what is logged at the start is of no mistake
	if err := changeUser(opt.User, nil, log); err != nil {
		return []error{err} // what somebody else may read says nothing
	}
	checks := []func() error{
		func() error { return exitWith(exitUsage, fixMemory(opt, metrics.MemoryLimit)) },
		func() error { return checkDirectory(opt.Binlog) },
		func() error { return exitWith(exitUsage, onlyErr(loadCertFiles(opt, log))) },
		func() error { return onlyErr(openAccess(opt, nil, log, log)) },
		func() error { return exitWith(exitUsage, checkAuditFile(opt.AuditFile)) },
		func() error { return new(monitor).protect(opt, log) },
		func() error { return exitWith(exitUsage, checkClusterFiles(opt, log)) },
	}
	for _, addr := range opt.Listen {
		checks = append(checks, func() error { return exitWith(exitListen, listen.Check(addr, opt.Port)) })
	}
	for _, addr := range opt.TLS.Listen {
		checks = append(checks, func() error { return exitWith(exitListen, listen.Check(addr, options.DefaultTLSPort)) })
	}
	for _, check := range checks {
		if err := check(); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	return mistakes
}

// showCheck prints what --check-config has found: the options, and in JSON the mistakes too.
func showCheck(w io.Writer, opt *options.Options, mistakes []error) {
	if opt.Output == options.OutputJSON {
		found := struct {
			Options  []options.Setting `json:"options"`
			Mistakes []string          `json:"mistakes"`
		}{append([]options.Setting{}, opt.Settings()...), []string{}}
		for _, m := range mistakes {
			found.Mistakes = append(found.Mistakes, m.Error())
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(found)
		return
	}
	if len(mistakes) > 0 {
		return // they are on standard error
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range opt.Settings() {
		fmt.Fprintf(columns, "--%s\t%s\t%s\n", s.Name, s.Value, s.From)
	}
	_ = columns.Flush()
	fmt.Fprintln(w, "nothing is wrong")
}

func onlyErr[T any](_ T, err error) error { return err }

// checkDirectory checks that the binlog's directory can be used, if there is to be one.
func checkDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
	case !info.IsDir():
		err = fmt.Errorf("%s is no directory", dir)
	default:
		if e := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); e != nil {
			err = fmt.Errorf("%s cannot be read and written by this user: %w", dir, e)
		}
	}
	if err != nil {
		return exitWith(exitBinlog, fmt.Errorf("-b: %w", err))
	}
	return nil
}

// checkAuditFile checks that the file can be written or made, if there is to be one.
func checkAuditFile(file string) error {
	if file == "" {
		return nil
	}
	err := unix.Access(file, unix.W_OK)
	if info, serr := os.Stat(file); serr == nil && info.IsDir() {
		err = unix.EISDIR
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Access(filepath.Dir(file), unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("--audit-file: %s cannot be written by this user: %w", file, err)
	}
	return nil
}

func checkClusterFiles(opt *options.Options, log *slog.Logger) error {
	c := &opt.Cluster
	if c.Cert == "" {
		return nil
	}
	return onlyErr(peerwire.LoadTLS(c.Cert, c.Key, c.CA, log))
}
