// SPDX-License-Identifier: Apache-2.0

// Package abi is the paravirtual RDMA device's ABI as bytes: the structures that the
// guest driver and the device exchange, their codecs, and the constants of the headers.
//
// It is written from Linux: include/uapi/rdma/vmw_pvrdma-abi.h (rings and doorbells) and
// drivers/infiniband/hw/vmw_pvrdma/pvrdma_{dev_api,ring,verbs}.h (registers, shared
// region, commands). The comments name these files by their last element. Its tests
// compile those headers and compare every structure, field and enumerator with them.
//
// # Names
//
// A C name is spelled in Go by dropping "pvrdma_" and writing the rest in camel case with
// Go's initialisms: pvrdma_qp_attr.dest_qp_num is QPAttr.DestQPNum. A request structure
// ends in Req, a response in Resp. Fields called reserved or pad have no Go counterpart.
//
// # Codecs
//
// All structures are little-endian with a fixed size, the constant <Type>Size.
//
//   - Decode reads exactly that many bytes from the front of its argument and ignores
//     reserved ones. It fails, with an error that wraps EINVAL, only when the argument is
//     shorter; then the receiver is unchanged. It checks no value: what a field means is
//     the caller's business, and any bit pattern can arrive.
//   - Encode writes exactly that many bytes to the front of its argument, reserved bytes
//     as zero. It panics when the argument is shorter: the caller owns the buffer.
//
// Decode must be given the caller's own copy of guest memory, never guest memory itself:
// a field may be read by the caller after its first look.
//
// # What this package may not do
//
// It has no behaviour, no state and no I/O, and imports nothing of this module.
package abi
