// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"path/filepath"
)

// Ranges of the numbers. The device's tables are sized by them in the guest's driver too.
const (
	// There are drivers of these versions. The first knows RoCE v1 alone.
	minDeviceVersion, maxDeviceVersion = 17, 20
	rocev1DeviceVersion                = 17
	// The upper bounds are what the software engine offers a guest, see ibv_query_device(3); more would have no effect.
	// Of queue pairs one is the GSI's, of registrations the first is the driver's DMA region.
	minQP, maxQP   = 2, 8192
	minCQ, maxCQ   = 2, 8192
	minMR, maxMR   = 2, 131072
	minPD, maxPD   = 2, 4096
	minSRQ, maxSRQ = 2, 1024
	// A page is 4 KiB of BAR2, and all of them are looked at by the poller: 512 take 1.3 us.
	minUAR, maxUAR = 2, 4096
	// A GID table has 256 entries.
	maxGIDs = 256
)

// complete fills in what follows from the name and checks the guest by itself.
func (g *Guest) complete(ps *Problems) {
	if g.Name == "" {
		if _, wrong := g.origin["name"]; !wrong {
			ps.add(g.at("name"), "name", "a guest needs a name: add name = \"vm1\" (a-z, 0-9 and \"-\")")
		}
		return
	}
	if g.SocketPath == "" {
		g.SocketPath = filepath.Join(SocketDir, string(g.Name)+".sock")
	}
	if err := checkSocketPath(g.SocketPath); err != nil {
		ps.add(g.at("socket_path"), "socket_path", "%v", err)
	}
	if g.MAC == (MAC{}) {
		g.MAC = DeriveMAC(string(g.Name))
	}
	g.completeRoCE(ps)
	for _, r := range []struct {
		key       string
		have      uint32
		low, high uint32
	}{
		{"device_version", g.DeviceVersion, minDeviceVersion, maxDeviceVersion},
		{"roce", g.RoCE, 1, 2},
		{"max_uar", g.MaxUAR, minUAR, maxUAR},
		{"max_qp", g.MaxQP, minQP, maxQP},
		{"max_cq", g.MaxCQ, minCQ, maxCQ},
		{"max_mr", g.MaxMR, minMR, maxMR},
		{"max_pd", g.MaxPD, minPD, maxPD},
		{"max_srq", g.MaxSRQ, minSRQ, maxSRQ},
	} {
		if r.have < r.low || r.have > r.high {
			ps.add(g.at(r.key), r.key, "%d is out of range: write %d to %d", r.have, r.low, r.high)
		}
	}
	if bits.OnesCount32(g.MaxUAR) != 1 {
		ps.add(g.at("max_uar"), "max_uar", "%d is no power of two, and the guest's driver needs one: write %d",
			g.MaxUAR, nearestPowerOfTwo(g.MaxUAR))
	}
	g.checkGIDs(ps)
}

// completeRoCE gives a device that knows RoCE v1 alone that one, unless the other is asked for.
func (g *Guest) completeRoCE(ps *Problems) {
	if g.DeviceVersion != rocev1DeviceVersion || g.RoCE == 1 {
		return
	}
	if _, asked := g.origin["roce"]; asked {
		ps.add(g.at("roce"), "roce", "device_version %d knows RoCE v1 alone: write roce = 1, or device_version = %d to %d",
			rocev1DeviceVersion, rocev1DeviceVersion+1, maxDeviceVersion)
		return
	}
	g.RoCE = 1
}

func (g *Guest) checkGIDs(ps *Problems) {
	if len(g.GIDs) > maxGIDs {
		ps.add(g.at("gids"), "gids", "%d addresses: a GID table has %d entries", len(g.GIDs), maxGIDs)
		return
	}
	seen := map[GID]bool{}
	for _, gid := range g.GIDs {
		if seen[gid] {
			text, _ := gid.MarshalText()
			ps.add(g.at("gids"), "gids", "%s is there twice: remove one", text)
		}
		seen[gid] = true
	}
}

// Origin returns where the key of the guest was written, or where the guest begins if it has its default.
func (g *Guest) Origin(key string) Origin { return g.at(key) }

// at is where key of the guest was written, or where the guest begins.
func (g *Guest) at(key string) Origin {
	if o, ok := g.origin[key]; ok {
		return o
	}
	return g.origin[""]
}

// checkWorkers checks that the guests can be served.
func (c *Config) checkWorkers(ps *Problems) {
	if c.Workers < 1 || c.Workers > MaxWorkers {
		ps.add(c.origin["workers"], "workers", "%d is out of range: write 1 to %d", c.Workers, MaxWorkers)
	}
}

// checkUnique checks that no two guests share what must be one guest's.
func (c *Config) checkUnique(ps *Problems) {
	keys := []struct {
		key, fix string
		value    func(*Guest) string
	}{
		{"name", "rename one", func(g *Guest) string { return string(g.Name) }},
		{"socket_path", "give each its own", func(g *Guest) string { return g.SocketPath }},
		{"mac", "leave mac out in one of them", func(g *Guest) string { return g.MAC.String() }},
	}
	for _, k := range keys {
		first := map[string]*Guest{}
		for i := range c.Guests {
			g := &c.Guests[i]
			v := k.value(g)
			if other, ok := first[v]; ok && g.Name != "" {
				// Guests of one name share all that follows from it: one report is enough.
				if k.key == "name" || other.Name != g.Name {
					ps.add(g.at(k.key), k.key, "%q is the %s of guest %q (%s) too: %s", v, k.key, other.Name, other.at(k.key), k.fix)
				}
				continue
			}
			first[v] = g
		}
		if l := c.Metrics.Listen; k.key == "socket_path" && l.Network == "unix" && first[l.Address] != nil {
			ps.add(c.origin["metrics.listen"], "metrics.listen", "%q is the socket of guest %q: give each its own",
				l.Address, first[l.Address].Name)
		}
	}
	// GIDs that two guests list can only be bound by one of them.
	owner := map[GID]*Guest{}
	for i := range c.Guests {
		g := &c.Guests[i]
		for _, gid := range g.GIDs {
			if other, ok := owner[gid]; ok && other != g {
				text, _ := gid.MarshalText()
				ps.add(g.at("gids"), "gids", "%s is in the list of guest %q (%s) too: a GID belongs to one guest",
					text, other.Name, other.at("gids"))
			}
			owner[gid] = g
		}
	}
}

// DeriveMAC returns the address of a guest that has none in its configuration: a locally administered unicast address
// that depends on the name alone, so that it is the same after every start, and never the one that QEMU gives every VM.
func DeriveMAC(name string) MAC {
	for i := 0; ; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "pvrdmad mac %d %s", i, name))
		m := MAC(sum[:6])
		m[0] = m[0]&^1 | 2
		if m != qemuDefaultMAC() {
			return m
		}
	}
}

// nearestPowerOfTwo returns the largest allowed number of doorbell pages that is not above n.
func nearestPowerOfTwo(n uint32) uint32 {
	n = min(max(n, minUAR), maxUAR)
	return 1 << (bits.Len32(n) - 1)
}
