// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// source is where a command takes its guests from: a file, or flags for a single guest.
type source struct {
	cmd  *cobra.Command
	path string
	// fd is the single guest's listening socket, -1 for none.
	fd int
	// values are the flags that were given, by name.
	values map[string]string
}

// newSource gives cmd the flags: one for each key of the configuration.
func newSource(cmd *cobra.Command) *source {
	s := &source{cmd: cmd, fd: -1, values: map[string]string{}}
	cmd.Flags().StringVarP(&s.path, "config", "c", config.DefaultPath, "configuration file")
	for _, k := range config.Keys() {
		name := config.FlagName(k.Path)
		cmd.Flags().Var(&textFlag{name: name, values: s.values, def: strings.Trim(k.Default, `"[]`)}, name, k.Doc)
	}
	return s
}

// textFlag is a flag whose text the configuration reads.
type textFlag struct {
	name, def string
	values    map[string]string
}

func (f *textFlag) String() string { return f.def }

func (f *textFlag) Set(s string) error {
	f.values[f.name] = s
	return nil
}

func (f *textFlag) Type() string { return "value" }

// single reports whether flags describe the only guest.
func (s *source) single() bool {
	_, ok := s.values[config.FlagName("guest.socket_path")]
	return ok || s.fd >= 0
}

// load returns the configuration.
func (s *source) load() (*config.Config, error) {
	if s.single() {
		return s.loadSingle()
	}
	for _, k := range config.Keys() {
		name := config.FlagName(k.Path)
		if _, ok := s.values[name]; ok && strings.HasPrefix(k.Path, "guest.") {
			return nil, usage("--%s describes a single guest: add --socket-path PATH, or write %s into a file", name, k.Path)
		}
	}
	c, err := config.Load(s.path)
	if err != nil {
		return nil, s.explain(err)
	}
	return c, c.Override(s.values)
}

func (s *source) loadSingle() (*config.Config, error) {
	if s.cmd.Flags().Changed("config") {
		return nil, usage("--config names guests of its own: leave it out, or leave out --socket-path and --fd")
	}
	values := maps.Clone(s.values)
	name := config.FlagName("guest.socket_path")
	if path, ok := values[name]; ok && s.fd >= 0 {
		return nil, usage("--fd %d and --socket-path %s are two sockets: leave one out", s.fd, path)
	} else if ok && path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("find --socket-path %s: %w", path, err)
		}
		values[name] = abs
	}
	return config.ForFlags(values)
}

// explain says what to do about a file that cannot be read.
func (s *source) explain(err error) error {
	var pe *fs.PathError
	if !errors.As(err, &pe) {
		return err
	}
	next := "make it readable"
	switch {
	case errors.Is(err, unix.EISDIR):
		next = "name the file in it"
	case errors.Is(err, fs.ErrNotExist):
		next = "write it, name another with --config FILE, or give a single guest with --socket-path PATH"
	}
	return &exitError{exitConfig, fmt.Errorf("%w: %s", err, next)}
}

// guest returns the guest that the arguments name, or the only one.
func (s *source) guest(c *config.Config, args []string) (*config.Guest, error) {
	names := make([]string, len(c.Guests))
	for i := range c.Guests {
		names[i] = string(c.Guests[i].Name)
	}
	if len(args) == 0 {
		if len(names) == 1 {
			return &c.Guests[0], nil
		}
		return nil, usage("which guest: %s?", oneOf(names))
	}
	g, ok := c.Guest(args[0])
	if !ok {
		return nil, usage("there is no guest %q: name %s", args[0], oneOf(names))
	}
	return g, nil
}

// maxListed bounds the names in an error.
const maxListed = 10

func oneOf(names []string) string {
	switch {
	case len(names) == 0:
		return "none is configured"
	case len(names) > maxListed:
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" or one of %d others", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// noArguments refuses arguments of a command that takes none.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) != 0 {
		return usage("%s takes no argument, %q is one: leave it out", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneGuest refuses more than one guest's name.
func oneGuest(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%s takes one guest, %d are given: name one", cmd.CommandPath(), len(args))
	}
	return nil
}

// completeGuest offers the names of configured guests to a shell.
func (s *source) completeGuest(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := s.load()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range c.Guests {
		names = append(names, string(c.Guests[i].Name))
	}
	return slices.Sorted(slices.Values(names)), cobra.ShellCompDirectiveNoFileComp
}

// exists reports whether the file that nobody named explicitly is there.
func (s *source) exists() bool {
	_, err := os.Stat(s.path)
	return s.single() || s.cmd.Flags().Changed("config") || !errors.Is(err, fs.ErrNotExist)
}
