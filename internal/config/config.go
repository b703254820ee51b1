// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"time"
)

// DefaultPath is the file that is read when no flag names another.
const DefaultPath = "/etc/pvrdmad/pvrdmad.toml"

// DropInDir is the directory beside the main file whose *.toml files describe one guest each.
const DropInDir = "guests.d"

// SocketDir is where a guest's socket lies unless socket_path says otherwise.
const SocketDir = "/run/pvrdmad"

// DefaultMetricsListen is where metrics are served when a file does not say otherwise.
const DefaultMetricsListen = "127.0.0.1:9861"

// MaxGuests bounds the guests of one daemon: each has a socket, an eventfd for each vector and the descriptors of its
// memory, and 1024 of them fit the usual hard limit of 524,288 descriptors with room.
const MaxGuests = 1024

// MaxWorkers bounds the workers: more than one for each core would only get in each other's way.
const MaxWorkers = 16

// maxFileSize bounds a configuration file in bytes: more than MaxGuests guests with every key set.
const maxFileSize = 1 << 20

// Config is the daemon's whole configuration.
type Config struct {
	// Workers is how many threads serve the guests.
	Workers uint32 `toml:"workers" doc:"threads that serve the guests, each some of them: 1 to 16"`
	// Spin is how long an idle worker looks for new work before it sleeps.
	Spin Spin `toml:"spin" doc:"idle time before a worker sleeps: a duration or auto"`
	// Windows says which memory regions the daemon maps a second time, contiguously.
	Windows Windows `toml:"windows" doc:"contiguous memory regions: auto, off or always"`
	// Log is what is logged and how.
	Log Log `toml:"log"`
	// Metrics is where metrics and health are served.
	Metrics Metrics `toml:"metrics"`
	// Guests are the guests, in the order of the file and then of the drop-ins' names.
	Guests []Guest `toml:"guest"`

	origin origins
}

// Log is the table [log].
type Log struct {
	Level  LogLevel  `toml:"level" doc:"least level logged: trace, debug, info, warn, error"`
	Format LogFormat `toml:"format" doc:"text or json"`
}

// Metrics is the table [metrics].
type Metrics struct {
	Listen Listen `toml:"listen" doc:"HOST:PORT, unix:PATH or off"`
}

// Guest is one guest: an entry of [[guest]], a drop-in file, or the flags of a single guest.
type Guest struct {
	// Name identifies the guest in logs, metrics and commands.
	Name Name `toml:"name" doc:"in logs, metrics and commands: a-z, 0-9, -; at most 32"`
	// SocketPath is the Unix socket at which the guest's virtual machine monitor connects.
	SocketPath string `toml:"socket_path" doc:"where the virtual machine monitor connects"`
	// SocketMode and SocketGroup say who may connect. An empty group is the daemon's own.
	SocketMode  FileMode `toml:"socket_mode" doc:"who may connect, octal"`
	SocketGroup string   `toml:"socket_group" doc:"group of the socket, name or number; empty: the daemon's"`
	// MAC is the address that node_guid and sys_image_guid are made from.
	MAC MAC `toml:"mac" doc:"where the GUIDs come from; the default follows from the name"`
	// DeviceVersion is pvrdma's VERSION register.
	DeviceVersion uint32 `toml:"device_version" doc:"VERSION register, 17 to 20; less for old guests"`
	// RoCE is the GID type that the guest is offered: 1 or 2.
	RoCE uint32 `toml:"roce" doc:"RoCE version of the guest's addresses, 1 or 2"`
	// Link says whether the guest's port is up. It is the one key that is followed when the configuration is read again.
	Link Link `toml:"link" doc:"the guest's port, up or down; read again on SIGHUP"`
	// Doorbells says whether doorbell pages are mapped or every doorbell is a message.
	Doorbells Doorbells `toml:"doorbells" doc:"poll (mapped pages) or trap (a message for each)"`
	// MaxUAR is the number of doorbell pages; one is the kernel's.
	MaxUAR uint32 `toml:"max_uar" doc:"doorbell pages (user contexts + 1), a power of two"`
	// MaxQP, MaxCQ, MaxMR, MaxPD and MaxSRQ bound the guest's objects.
	MaxQP  uint32 `toml:"max_qp" doc:"queue pairs"`
	MaxCQ  uint32 `toml:"max_cq" doc:"completion queues"`
	MaxMR  uint32 `toml:"max_mr" doc:"memory regions"`
	MaxPD  uint32 `toml:"max_pd" doc:"protection domains"`
	MaxSRQ uint32 `toml:"max_srq" doc:"shared receive queues"`
	// GIDs are the only addresses that the guest may bind. Empty: any that no other guest holds.
	GIDs []GID `toml:"gids" doc:"addresses that the guest may bind; empty: any that is free"`
	// CQGrace is how long an entry may stay unconsumed in a completion queue that may be armed.
	CQGrace Duration `toml:"cq_grace" doc:"when a polled queue with an unread entry is notified"`

	origin origins
}

// Default returns the configuration that an empty file stands for.
func Default() Config {
	return Config{
		Workers: 1,
		Spin:    Spin{Auto: true},
		Windows: WindowsAuto,
		Log:     Log{Level: "info", Format: "text"},
		Metrics: Metrics{Listen: Listen{Network: "tcp", Address: DefaultMetricsListen}},
		origin:  origins{},
	}
}

// DefaultGuest returns a guest with every key at its default. Name is empty; SocketPath and MAC follow from the name
// and are filled in after the name is known.
func DefaultGuest() Guest {
	return Guest{
		SocketMode:    0o660,
		DeviceVersion: 20,
		RoCE:          2,
		Link:          LinkUp,
		Doorbells:     DoorbellsPoll,
		MaxUAR:        512,
		MaxQP:         8192,
		MaxCQ:         8192,
		MaxMR:         131072,
		MaxPD:         4096,
		MaxSRQ:        1024,
		CQGrace:       Duration(20 * time.Microsecond),
		origin:        origins{},
	}
}

// Equal reports whether two guests have the same values, wherever they were written.
func (g *Guest) Equal(o *Guest) bool {
	a, b := *g, *o
	a.origin, b.origin = nil, nil
	return reflect.DeepEqual(a, b)
}

// Changed lists the keys for the whole daemon whose values in o are others, wherever they were written.
func (c *Config) Changed(o *Config) (keys []string) {
	other := map[string]string{}
	walk("", reflect.ValueOf(o).Elem(), func(path string, f field) { other[path] = render(f.value) })
	walk("", reflect.ValueOf(c).Elem(), func(path string, f field) {
		if render(f.value) != other[path] {
			keys = append(keys, path)
		}
	})
	return keys
}

// Guest returns the guest with that name.
func (c *Config) Guest(name string) (*Guest, bool) {
	for i := range c.Guests {
		if string(c.Guests[i].Name) == name {
			return &c.Guests[i], true
		}
	}
	return nil, false
}
