package main

import (
	"fmt"
	"strings"

	"weida/broker/queue"
	"weida/raftstore"
	"weida/segment"
)

// upload is a large body on its way from its producer to a desk, in pieces, on a stream of its own.
type upload struct {
	d      *desk
	m      *message
	cmd    queue.Command
	want   want
	reply  func(result)
	w      raftstore.BodyWriter
	at     int // bytes written
	stalls int // bytes after which nothing comes any more; negative: all comes
}

const (
	uploadPiece = 40_000
	// uploadPatience is how long a desk waits for the rest of a body.
	uploadPatience = 2 * second
)

// upload takes the body of m, and proposes m with it.
func (d *desk) upload(m *message, cmd queue.Command, w want, reply func(result)) {
	file, err := d.group.NewBody(int64(len(m.body)))
	if err != nil {
		reply(result{kind: refused, lead: d.lead, why: err})
		return
	}
	u := &upload{d: d, m: m, cmd: cmd, want: w, reply: reply, w: file, stalls: -1}
	if d.rng.IntN(1000) < d.net.stalls {
		u.stalls = d.rng.IntN(len(m.body))
	}
	if u.stalls < 0 && d.chance(2) {
		for err == nil && u.at < len(m.body) {
			err = u.piece()
		}
		u.end(err)
		return
	}
	d.check.overtaken(m)
	u.next()
}

// next waits for the next piece.
func (u *upload) next() {
	u.d.alive(u.d.between(100, 30*millisecond), func() {
		defer u.d.wake() // what was written goes on to the others
		if u.d.gone {
			u.w.Abort()
			return
		}
		if u.stalls >= 0 && u.at >= u.stalls {
			u.stall()
			return
		}
		if err := u.piece(); err != nil || u.at == len(u.m.body) {
			u.end(err)
			return
		}
		u.next()
	})
}

// piece writes one piece.
func (u *upload) piece() error {
	limit := min(u.at+uploadPiece, len(u.m.body))
	_, err := u.w.Write(u.m.body[u.at:limit])
	u.at = limit
	return err
}

// stall is a producer that sends half of a body and then neither the rest nor a word: nothing of it is stored, and its
// file is gone (fault 39).
func (u *upload) stall() {
	u.d.stats.fault("body stalls")
	u.d.note("g%d %v: nothing comes after %d bytes", u.d.g.id, u.m, u.at)
	u.d.alive(uploadPatience, func() {
		u.w.Abort()
		if u.d.gone || u.d.died() {
			return
		}
		name := fmt.Sprintf("%016x-%016x.body", uint64(u.w.Ref().Term), u.w.Ref().Seq)
		for _, f := range u.d.disk.Files() {
			if strings.Contains(f, fmt.Sprintf("/%d/", u.d.g.id)) && strings.HasSuffix(f, name) {
				u.d.fail("Q9 %v g%d: half of %v is still there: %s", u.d.node, u.d.g.id, u.m, f)
			}
		}
		u.reply(result{kind: refused, lead: u.d.lead})
	})
}

// end proposes the message when all of its body is written.
func (u *upload) end(err error) {
	if err == nil {
		err = u.w.Finish(segment.DigestOf(u.m.body))
	}
	if err != nil {
		u.w.Abort()
		u.reply(result{kind: refused, lead: u.d.lead, why: err})
		return
	}
	u.d.offer(u.m, raftstore.Item{Command: u.cmd.Append(nil), HasBody: true, Large: u.w}, u.want, u.reply)
}
