package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"trellis/binlog"
	"trellis/cmd/internal/client"
)

// Exit statuses of the commands that speak to a server or to a cluster. Those of bench,
// binlog, ping and token are in the help of trellis itself.
const (
	exitNothing     = 1 // nothing was found, or something else went wrong
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
	exitInterrupted = 130 // as shells have it for SIGINT
)

// exitHelp is for the help of a command that has them all.
const exitHelp = `The exit status is 0 when it is done, 1 when nothing was found that it could be done to, 2 when the
command line is wrong, 3 when the server cannot be reached or does not answer, 4 when it refuses or lacks a command,
and 130 after an interrupt.`

// exitError is an error with the exit status that it means.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// A partialError is an error that came when a part was already done.
type partialError struct {
	err  error
	rest string // what follows the error, with the sign in front: what was done, or what is not known
}

func (e *partialError) Error() string { return e.err.Error() + e.rest }
func (e *partialError) Unwrap() error { return e.err }

func usageError(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// mistakesAreUsage gives mistakes in the command line of cmd their exit status, and leaves
// those of its subcommands alone.
func mistakesAreUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(of *cobra.Command, err error) error {
		if of != cmd {
			return err
		}
		return usageError(err)
	})
	check := cmd.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return usageError(check(cmd, args)) }
}

// refused marks an error that would come again if the same command were repeated.
func refused(err error) error { return &exitError{exitRefused, err} }

// nothingFound marks an error that tells what is not there.
func nothingFound(err error) error { return &exitError{exitNothing, err} }

func exitStatus(err error) int {
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return exit.status
	}
	if damage := (*binlog.DamageError)(nil); errors.As(err, &damage) {
		return 2
	}
	return 1
}

// statusOfAnswer is the exit status for an error of package client.
func statusOfAnswer(err error) int {
	lacks, no, conn := (*client.LacksError)(nil), (*client.RefusedError)(nil), (*client.ConnError)(nil)
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &lacks), errors.As(err, &no):
		return exitRefused
	case errors.As(err, &conn):
		return exitUnreachable
	case errors.Is(err, client.ErrLine):
		return exitUsage
	}
	return exitNothing
}
