// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// frameBuffer is how many bytes a link keeps for a message from the start: the longest of QEMU's with room. A
// longer one (up to MaxFrame) makes it grow.
const frameBuffer = 8 << 10

// message is a command as it came from the client.
type message struct {
	header
	// body is the payload; it is overwritten by the next message.
	body []byte
	// fds came with it.
	fds fdList
	// fdFault is what was wrong with the way they came.
	fdFault error
}

// link moves whole messages over a socket. All its methods but close belong to the session's goroutine.
type link struct {
	conn    *net.UnixConn
	timeout time.Duration // of a write, at least, and twice that at most
	// deadline is that of writes as last set.
	deadline time.Time
	in       []byte
	out      []byte // the answer under construction, beginning with room for its header
	oob      []byte
	msg      message
}

func newLink(conn *net.UnixConn, writeTimeout time.Duration) *link {
	return &link{
		conn:    conn,
		timeout: writeTimeout,
		in:      make([]byte, frameBuffer),
		out:     make([]byte, headerSize, headerSize+regionAccessSize+MaxTransfer),
		oob:     make([]byte, unix.CmsgSpace(MaxMessageFDs*4)),
	}
}

// receive reads one message. It returns io.EOF if the client closed its end between two messages, and the
// message beside the error if that is a violation. The caller closes what is left of the message's fds.
func (l *link) receive() (*message, error) {
	m := &l.msg
	*m = message{}
	if err := l.fill(m, l.in[:headerSize], true); err != nil {
		return m, err
	}
	m.header = parseHeader(l.in)
	if err := m.checkFraming(); err != nil {
		return m, err
	}
	if int(m.size) > len(l.in) {
		l.in = make([]byte, MaxFrame)
	}
	m.body = l.in[headerSize:m.size]
	return m, l.fill(m, m.body, false)
}

// fill reads exactly len(p) bytes, a message's header or its payload, and the fds that come along. Fds belong to the
// header: they travel with the first byte of a write, and clients send a message in one. Writes that follow each
// other may be received as one, so there is no telling with which byte of the header they came. It never reads past
// the message: fds of the next one stay where they are.
func (l *link) fill(m *message, p []byte, inHeader bool) error {
	for got := 0; got < len(p); {
		n, oobn, flags, _, err := l.conn.ReadMsgUnix(p[got:], l.oob)
		if oobn > 0 || flags&unix.MSG_CTRUNC != 0 {
			m.collect(l.oob[:oobn], flags, inHeader)
		}
		switch {
		case errors.Is(err, io.EOF) && inHeader && got == 0:
			return io.EOF
		case errors.Is(err, io.EOF):
			return fmt.Errorf("read a message: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return fmt.Errorf("read a message: %w", err)
		}
		got += n
	}
	return nil
}

// collect takes over the fds of one recvmsg(2).
func (m *message) collect(oob []byte, flags int, inHeader bool) {
	before := m.fds.n
	tooMany := flags&unix.MSG_CTRUNC != 0
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		m.fdFault = refuse(FaultFDs, unix.EINVAL, "control data of %d bytes", len(oob))
	}
	for i := range controls {
		fds, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			continue // not SCM_RIGHTS; nothing in it needs closing
		}
		for _, fd := range fds {
			tooMany = !m.fds.add(fd) || tooMany
		}
	}
	switch {
	case faultOf(m.fdFault) == FaultTooManyFDs:
	case tooMany && m.fds.n-before < MaxMessageFDs && m.fds.n < MaxMessageFDs:
		// They would have fitted, so it is this process that cannot take more.
		m.fdFault = refuse(FaultFDs, unix.EMFILE, "file descriptors lost, raise this process's limit (RLIMIT_NOFILE)")
	case tooMany:
		m.fdFault = refuse(FaultTooManyFDs, unix.EINVAL, "more than %d file descriptors", MaxMessageFDs)
	case !inHeader:
		m.fdFault = refuse(FaultFDs, unix.EINVAL, "file descriptors in the middle of a message")
	}
}

// closeFD closes a client's file descriptor. A socket's may have been set to linger, for as long as the client likes: its
// close would wait that long, and the client's session with it.
func closeFD(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{}) // ENOTSOCK is the rule
	_ = unix.Close(fd)
}

// fdList is the file descriptors of one message. What is not taken out of it is closed after the message.
type fdList struct {
	fd [MaxMessageFDs]int
	n  int
}

// add puts an fd into the list, or closes it if the list is full.
func (f *fdList) add(fd int) bool {
	if f.n == len(f.fd) {
		closeFD(fd)
		return false
	}
	f.fd[f.n] = fd
	f.n++
	return true
}

// take returns an fd; it is the caller's from now on.
func (f *fdList) take(i int) int {
	fd := f.fd[i]
	f.fd[i] = -1
	return fd
}

// close closes what was not taken.
func (f *fdList) close() {
	for i := range f.n {
		if fd := f.take(i); fd >= 0 {
			closeFD(fd)
		}
	}
	f.n = 0
}

// begin starts an answer: handlers append its payload to out.
func (l *link) begin() { l.out = l.out[:headerSize] }

// reply sends the answer under construction, with a file descriptor if fd is not -1; or, if errno is not 0, an
// error, which is a header alone.
func (l *link) reply(h header, errno unix.Errno, fd int) error {
	answer := header{id: h.id, command: h.command, flags: typeReply}
	if errno != 0 {
		l.begin()
		fd = -1
		answer.flags |= headerError
		answer.errno = uint32(errno)
	}
	answer.size = uint32(len(l.out))
	answer.put(l.out)
	if err := l.send(l.out, fd); err != nil {
		return fmt.Errorf("write the reply to %s: %w", h.command, err)
	}
	return nil
}

// extend gives a write at least the timeout. A deadline costs as much as a system call, and so it is moved only when half of
// it is used up.
func (l *link) extend(now time.Time) error {
	if l.deadline.Sub(now) >= l.timeout {
		return nil
	}
	l.deadline = now.Add(2 * l.timeout)
	return l.conn.SetWriteDeadline(l.deadline)
}

// send writes all of p. In one write if the socket has room: QEMU wants a header in one piece.
func (l *link) send(p []byte, fd int) error {
	if err := l.extend(time.Now()); err != nil {
		return err
	}
	if fd >= 0 {
		n, _, err := l.conn.WriteMsgUnix(p, unix.UnixRights(fd), nil)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	if len(p) == 0 {
		return nil
	}
	_, err := l.conn.Write(p)
	return err
}
