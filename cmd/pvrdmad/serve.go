// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/internal/systemd"
	"github.com/pvrdmad/pvrdmad/internal/telemetry"
	"github.com/spf13/cobra"
)

// shutdownBudget is how long guests have to be let go: whoever sent SIGTERM may send SIGKILL after 2 s.
const shutdownBudget = 1500 * time.Millisecond

// logBudget is how long the last log lines may take to be read.
const logBudget = 200 * time.Millisecond

func newServe() *cobra.Command {
	var capabilities bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the devices of one or more guests",
		Long: "Serve the devices of the guests in a file and in guests.d/*.toml beside it, or\n" +
			"of a single guest that flags describe, beginning with --socket-path or --fd. A\n" +
			"single guest has no metrics unless --metrics-listen is given. The daemon ends on\n" +
			"SIGTERM and SIGINT within 2 s. On SIGHUP it reads the configuration again, and\n" +
			"takes ports of guests up or down as link says there.",
		Example: "  pvrdmad serve --config /etc/pvrdmad/pvrdmad.toml\n" +
			"  pvrdmad serve --socket-path /run/pvrdmad/vm1.sock --name vm1",
		Args: noArguments,
	}
	src := newSource(cmd)
	cmd.Flags().IntVar(&src.fd, "fd", -1, "listening socket, instead of --socket-path")
	cmd.Flags().BoolVar(&capabilities, "print-capabilities", false, "print what this program can do, as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if capabilities {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
				"type": "pvrdma", "protocol": "vfio-user", "engines": []string{engineName},
				"features": []string{"socket-path", "fd", "socket-group"},
			})
		}
		c, err := src.load()
		if err != nil {
			return err
		}
		if len(c.Guests) == 0 {
			return &exitError{exitConfig, errors.New("no guest is configured: add [[guest]] to " + src.path +
				", a file to " + config.DropInDir + " beside it, or give --socket-path PATH")}
		}
		return serve(c, src)
	}
	return cmd
}

// serve serves until a signal ends it. A second signal ends it at once.
func serve(c *config.Config, src *source) error {
	// A log or a client whose reader has gone must not end the daemon.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// From the first moment on: a daemon that has no handler yet is ended by it.
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(hups)
	defer context.AfterFunc(ctx, stop)()

	log := telemetry.NewLog(telemetry.LogConfig{
		Level: string(c.Log.Level), JSON: c.Log.Format == "json", Journal: systemd.JournalReadsStderr(), Output: os.Stderr,
	})
	defer log.Close(logBudget)
	d, err := openDaemon(c, src.fd, log)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx, &reloader{load: src.load, asks: hups})
	}()
	<-ctx.Done()
	select {
	case <-ended:
		log.Info("stopped")
		return nil
	case <-time.After(shutdownBudget):
		return &exitError{exitFailed, errors.New("guests were not let go in time, their virtual machines lose the device")}
	}
}
