package wire

import (
	"strconv"
	"strings"
)

// Redirect names the node that leads a queue, or one that knows more. It answers a stream's first frame, or ends
// a stream whose queue has another leader now: what has no answer is then indeterminate.
type Redirect struct {
	Queue string
	Term  uint64   // of that leadership; 0: the node is a replica, and who leads is not known here
	Node  [32]byte // fingerprint of the key that the node proves; nobody else is to be believed at the address
	Host  string   // name or address
	Port  uint64   // UDP
}

// Type is TypeRedirect.
func (*Redirect) Type() Type { return TypeRedirect }

// Addr is host and port as one.
func (f *Redirect) Addr() string {
	port := ":" + strconv.FormatUint(f.Port, 10)
	if strings.Contains(f.Host, ":") { // an address of IP version 6
		return "[" + f.Host + "]" + port
	}
	return f.Host + port
}

func (f *Redirect) encode(e *enc) {
	e.text(f.Queue)
	e.uint(f.Term)
	e.raw(f.Node[:])
	e.text(f.Host)
	e.uint(f.Port)
}

func (f *Redirect) decode(d *dec) {
	f.Queue = d.text(QueueMax, "queue name")
	f.Term = d.uint()
	f.Node = d.fingerprint()
	f.Host = d.text(HostMax, "host")
	f.Port = d.uint()
	if d.err == nil && (f.Host == "" || f.Port == 0 || f.Port > 65535) {
		d.fail("a redirect to no address")
	}
}

// Forwarded goes before the first frame of a stream that a node opens for a client of its own: the stream is
// that client's. Only nodes may say so.
type Forwarded struct {
	Client [32]byte // fingerprint of the key that the client proved to the node
}

// Type is TypeForwarded.
func (*Forwarded) Type() Type { return TypeForwarded }

func (f *Forwarded) encode(e *enc) { e.raw(f.Client[:]) }
func (f *Forwarded) decode(d *dec) { f.Client = d.fingerprint() }

// Single goes before the first frame of a stream whose client knows one node only: instead of a redirect, the
// node forwards the stream.
type Single struct{}

// Type is TypeSingle.
func (*Single) Type() Type { return TypeSingle }

func (*Single) encode(*enc) {}
func (*Single) decode(*dec) {}
