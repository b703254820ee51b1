// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"time"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// Request and Response are the bytes of a command slot and a response slot: as large as the largest command.
type (
	Request  [abi.CmdReqSize]byte
	Response [abi.CmdRespSize]byte
)

// handler executes one command: it reads req, which no longer changes, and writes the response's body. The error wraps an
// errno; a command that fails has changed nothing.
type handler func(d *Device, req *Request, resp *Response) error

// handlers returns the function of a command, nil for one that is not served.
func handlers(c abi.Cmd) handler {
	switch c {
	case abi.CmdQueryPort:
		return (*Device).queryPort
	case abi.CmdQueryPKey:
		return (*Device).queryPKey
	case abi.CmdCreatePD:
		return (*Device).createPD
	case abi.CmdDestroyPD:
		return (*Device).destroyPD
	case abi.CmdCreateMR:
		return (*Device).createMR
	case abi.CmdDestroyMR:
		return (*Device).destroyMR
	case abi.CmdCreateCQ:
		return (*Device).createCQ
	case abi.CmdDestroyCQ:
		return (*Device).destroyCQ
	case abi.CmdCreateQP:
		return (*Device).createQP
	case abi.CmdModifyQP:
		return (*Device).modifyQP
	case abi.CmdQueryQP:
		return (*Device).queryQP
	case abi.CmdDestroyQP:
		return (*Device).destroyQP
	case abi.CmdCreateSRQ:
		return (*Device).createSRQ
	case abi.CmdModifySRQ:
		return (*Device).modifySRQ
	case abi.CmdQuerySRQ:
		return (*Device).querySRQ
	case abi.CmdDestroySRQ:
		return (*Device).destroySRQ
	case abi.CmdCreateUC:
		return (*Device).createUC
	case abi.CmdDestroyUC:
		return (*Device).destroyUC
	case abi.CmdCreateBind:
		return (*Device).createBind
	case abi.CmdDestroyBind:
		return (*Device).destroyBind
	}
	return nil
}

// errUnfinished is what the Observer hears of a command that panics.
var errUnfinished = fmt.Errorf("command was not finished: %w", unix.EIO)

// Exec executes the command in req and writes its response. On an error resp is unspecified, and the error wraps the errno
// that the guest is to be told as far as its driver allows. Doorbells that were rung before are served before.
func (d *Device) Exec(req *Request, resp *Response) (err error) {
	start := time.Now()
	cmd, _ := abi.PeekCmd(req[:]) // the slot holds a header
	defer func() {
		d.observe(CommandDone{Guest: d.guest(), Cmd: cmd, Err: err, Duration: time.Since(start)})
	}()
	err = errUnfinished
	err = d.exec(cmd, req, resp)
	return err
}

func (d *Device) exec(cmd abi.Cmd, req *Request, resp *Response) error {
	if d.engine == nil {
		return fmt.Errorf("%v before the device is active: %w", cmd, unix.ENODEV)
	}
	h := handlers(cmd)
	if h == nil {
		return fmt.Errorf("%v is not served by this device: %w", cmd, unix.EOPNOTSUPP)
	}
	*resp = Response{}
	// If that fails, the device is about to be reset. The command is executed all the same, so that the device lets go of
	// what it destroys.
	d.catchUp()
	if err := h(d, req, resp); err != nil {
		return fmt.Errorf("%v: %w", cmd, err)
	}
	var asked abi.CmdHeader
	if err := asked.Decode(req[:]); err != nil {
		return err
	}
	answer := abi.RespHeader{Response: asked.Response, Ack: cmd.Ack()}
	answer.Encode(resp[:])
	return nil
}

// noSuch is the error of a handle that names nothing.
func noSuch(what string, handle uint32) error {
	return fmt.Errorf("%s %d does not exist: %w", what, handle, unix.EINVAL)
}
