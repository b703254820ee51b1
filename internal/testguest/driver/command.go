// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// CommandError is a command that failed.
type CommandError struct {
	Name string
	// Register is what the ERR register said, Ack and Err what the response says if the register was 0.
	Register, Ack uint32
	Err           uint8
	// Guest is the errno that the driver makes of it.
	Guest unix.Errno
}

// Error implements error.
func (e *CommandError) Error() string {
	if e.Register != 0 {
		return fmt.Sprintf("%s: ERR register %d (%v), the guest sees %v", e.Name, int32(e.Register),
			unix.Errno(e.Register), e.Guest)
	}
	return fmt.Sprintf("%s: ack %#x, err %d (%v), the guest sees %v", e.Name, e.Ack, e.Err, unix.Errno(e.Err), e.Guest)
}

// Unwrap returns the errno that the guest sees.
func (e *CommandError) Unwrap() error { return e.Guest }

// Errno is the device's own errno.
func (e *CommandError) Errno() unix.Errno {
	if e.Register != 0 {
		return unix.Errno(e.Register)
	}
	return unix.Errno(e.Err)
}

// command is a request and what the driver does with its answer.
type command struct {
	req  layout.View
	code string
	// ack is the code of the expected response; "" if the driver does not wait for one.
	ack string
	// failure is the errno that the driver makes of a failure.
	failure unix.Errno
}

// newCommand begins a request: struct pvrdma_cmd_<name>.
func (d *Device) newCommand(name, code string) command {
	req := d.L.New("pvrdma_cmd_" + name)
	req.Set("hdr.cmd", uint64(d.L.Const("PVRDMA_CMD_"+code)))
	return command{req: req, code: code, failure: unix.EFAULT}
}

// run executes a command as pvrdma_cmd_post does and returns the response slot's bytes, nil if none is awaited.
func (d *Device) run(c command) ([]byte, error) {
	var ack uint32
	if c.ack != "" {
		ack = d.L.Const("PVRDMA_CMD_" + c.ack)
	}
	resp, err := d.Post(c.req.Bytes(), c.code, ack)
	var e *CommandError
	if errors.As(err, &e) {
		e.Guest = c.failure
	}
	return resp, err
}

// Post puts a request of any bytes into the command slot, rings, and waits for the response if ack is not 0.
func (d *Device) Post(req []byte, name string, ack uint32) ([]byte, error) {
	d.cmdMu.Lock()
	defer d.cmdMu.Unlock()
	slot, err := d.RAM.Bytes(d.slots[0], ram.PageSize)
	if err != nil {
		return nil, err
	}
	d.soil(slot[:d.L.Size("pvrdma_cmd_req")])
	copy(slot, req)
	d.irqs.forget(0) // reinit_completion
	if err := d.WriteReg("PVRDMA_REG_REQUEST", 0); err != nil {
		return nil, err
	}
	v, err := d.ReadReg("PVRDMA_REG_ERR")
	if err != nil {
		return nil, err
	}
	if v != 0 {
		return nil, &CommandError{Name: name, Register: v, Guest: unix.EFAULT}
	}
	if ack == 0 {
		return nil, nil
	}
	if !d.irqs.wait(0, commandTimeout) {
		return nil, &CommandError{Name: name, Guest: unix.ETIMEDOUT}
	}
	return d.response(name, ack)
}

func (d *Device) response(name string, ack uint32) ([]byte, error) {
	resp := d.ResponseSlot()
	h := d.L.View("pvrdma_cmd_resp_hdr", resp)
	if got := h.Get32("ack"); got != ack {
		return nil, &CommandError{Name: name, Ack: got, Err: uint8(h.Get32("err")), Guest: unix.EFAULT}
	}
	return resp, nil
}

// ResponseSlot returns a copy of the response slot as it is now.
func (d *Device) ResponseSlot() []byte {
	b, err := d.RAM.Bytes(d.slots[1], d.L.Size("pvrdma_cmd_resp"))
	if err != nil {
		panic(err) // the page is our own
	}
	return slices.Clone(b)
}

// soil fills the slot with what was on the stack: the driver copies the whole union and fills only its command.
func (d *Device) soil(slot []byte) {
	for i := range slot {
		d.garbage = d.garbage*5 + 17
		slot[i] = d.garbage
	}
}
