// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/internal/doctor"
	"github.com/pvrdmad/pvrdmad/internal/qemu"
	"github.com/pvrdmad/pvrdmad/internal/telemetry"
	"github.com/spf13/cobra"
)

// engineName is the engine of this build.
const engineName = "soft"

func newQEMUArgs() *cobra.Command {
	var o qemu.Options
	var asJSON, oneLine bool
	cmd := &cobra.Command{
		Use:   "qemu-args [GUEST]",
		Short: "Print the QEMU arguments that give a guest its device",
		Long: "Print the QEMU arguments that give a guest its device, one option a line for a\n" +
			"shell: shared memory, a bridge, vmxnet3 at function 0 and the device at function\n" +
			"1 of one slot. Guests that are to reach each other need a network in common: the\n" +
			"default, user, is one for each virtual machine.",
		Example: "  pvrdmad qemu-args vm1 --memory 8G --netdev bridge,br=br0",
		Args:    oneGuest,
	}
	src := newSource(cmd)
	cmd.ValidArgsFunction = src.completeGuest
	f := cmd.Flags()
	f.StringVar(&o.Memory, "memory", "4G", "the guest's memory with its unit, as QEMU writes it")
	f.StringVar(&o.Netdev, "netdev", "user", "network back end without its id, as QEMU writes it")
	f.BoolVar(&o.NoPostedWrites, "x-no-posted-writes", false, "make every register write wait for its answer")
	f.BoolVar(&asJSON, "json", false, "print a JSON list")
	f.BoolVar(&oneLine, "oneline", false, "print one line")
	cmd.MarkFlagsMutuallyExclusive("json", "oneline")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := src.load()
		if err != nil {
			return err
		}
		g, err := src.guest(c, args)
		if err != nil {
			return err
		}
		o.Socket, o.MAC = g.SocketPath, g.MAC.String()
		list, err := qemu.Args(o)
		if err != nil {
			return usage("%w", err)
		}
		out := cmd.OutOrStdout()
		switch {
		case asJSON:
			return json.NewEncoder(out).Encode(list)
		case oneLine:
			_, err = fmt.Fprint(out, qemu.OneLine(list))
		default:
			_, err = fmt.Fprint(out, qemu.Lines(list))
		}
		return err
	}
	return cmd
}

func newDoctor() *cobra.Command {
	env := doctor.Env{Proc: "/proc", Engine: engineName}
	cmd := &cobra.Command{
		Use:   "doctor [GUEST]",
		Short: "Look for what keeps a guest from having a working device",
		Args:  oneGuest,
	}
	src := newSource(cmd)
	cmd.ValidArgsFunction = src.completeGuest
	cmd.Flags().StringVar(&env.QEMU, "qemu", "", "QEMU to look at (default "+qemu.Command+" on the PATH)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var guests []config.Guest
		var findings []doctor.Finding
		if len(args) == 0 && !src.exists() {
			findings = append(findings, doctor.Finding{
				Check: "config", Verdict: doctor.Warn, Reason: src.path + " does not exist, so that no guest is checked",
				Next: "name a file with --config FILE, or a single guest with --socket-path PATH",
			})
		} else {
			c, err := src.load()
			if err != nil {
				return err
			}
			guests = c.Guests
			if len(args) > 0 {
				g, err := src.guest(c, args)
				if err != nil {
					return err
				}
				guests = []config.Guest{*g}
			}
		}
		findings = append(findings, missingGroups(guests)...)
		findings = append(findings, doctor.Run(cmd.Context(), env, guests)...)
		if err := doctor.Print(cmd.OutOrStdout(), findings); err != nil {
			return err
		}
		if doctor.Failed(findings) {
			return errFound
		}
		return nil
	}
	return cmd
}

// missingGroups names the guests whose socket belongs to a group that is not on this host: serve refuses to start.
func missingGroups(guests []config.Guest) (missing []doctor.Finding) {
	for i := range guests {
		if _, err := socketGroup(&guests[i]); err != nil {
			missing = append(missing, doctor.Finding{
				Check: "socket", Guest: string(guests[i].Name), Verdict: doctor.Fail,
				Reason: fmt.Sprintf("there is no group %q on this host: serve does not start", guests[i].SocketGroup),
				Next:   "create it, or leave socket_group out",
			})
		}
	}
	return missing
}

func newCheckConfig() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "check-config",
		Short: "Check the configuration and print it with origins of values",
		Args:  noArguments,
	}
	src := newSource(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but mistakes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := src.load()
		if err != nil {
			return err
		}
		for i := range c.Guests {
			if _, err := socketGroup(&c.Guests[i]); err != nil {
				return err
			}
		}
		if quiet {
			return nil
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), c)
		return err
	}
	return cmd
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildInfo()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": b.Version, "revision": b.Revision, "go": b.GoVersion, "engine": engineName,
				})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "pvrdmad %s (revision %s, %s, engine %s)\n", b.Version, b.Revision, b.GoVersion, engineName)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// buildInfo is what the linker noted.
func buildInfo() telemetry.Build {
	b := telemetry.Build{Version: "unknown", Revision: "unknown", GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
