package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"weida/broker/admin"
)

// options of a run.
type options struct {
	attacks []attack
	passes  int
	before  time.Duration // watched before each attack
	during  time.Duration // of each attack
	back    time.Duration // how long the node may take to be as before
	answer  time.Duration // how long the node may take to let a newcomer in, and to say how it is
	rate    int           // messages a second of the good client
	size    int           // of the attacks
	// patience is how long to wait for a quiet machine before each attack
	patience   time.Duration
	processors int       // that an attacker may use
	yield      int       // how much nicer than this process the attackers are
	kill       bool      // attackers that vanish are killed; else they leave
	live       io.Writer // how far it is
}

// played is one attack, once.
type played struct {
	attack             attack
	before, during     watched
	after, last        levels        // when all was back, but 10 s after it at most; and however long that took
	back               time.Duration // how long it took to be as before
	newcomers, refused int           // clients that came during the attack, and of these those that did not get in
	tally              tally
	problems           []error
}

// run is one node under attack after attack.
type run struct {
	o    options
	node *node
	good *good
	home *admin.Queue // of the good client
	list []*played
}

// hostile plays all passes on a node in dir. The error is what kept it from being played.
func hostile(ctx context.Context, o options, bin, dir string) (*run, error) {
	n, err := start(bin, dir)
	if err != nil {
		return nil, err
	}
	n.answer = o.answer
	r := &run{o: o, node: n}
	if r.home, err = n.make(ctx, goodQueue); err == nil {
		r.good, err = newGood(ctx, n, o.rate)
	}
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	err = r.passes(ctx)
	if gerr := r.good.end(ctx); err == nil {
		err = gerr
	}
	return r, errors.Join(err, n.stop())
}

func (r *run) passes(ctx context.Context) error {
	for pass := range r.o.passes {
		for k := range r.o.attacks {
			a := r.o.attacks[k]
			if pass%2 == 1 { // back and forth, so that no attack always follows the same one
				a = r.o.attacks[len(r.o.attacks)-1-k]
			}
			fmt.Fprintf(r.o.live, "\rpass %d of %d: %-20s", pass+1, r.o.passes, a.name)
			p, err := r.play(ctx, a)
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			r.list = append(r.list, p)
		}
	}
	return nil
}

// play plays one attack: a look before it, the attack, and a look at what is left.
func (r *run) play(ctx context.Context, a attack) (*played, error) {
	p := &played{attack: a, tally: newTally()}
	bait, err := r.node.beside(ctx, r.home)
	if err != nil {
		return nil, err
	}
	name := bait.Metadata.Name
	if a.fill > 0 {
		if err := r.node.fill(ctx, name, a.fill, a.fillSize); err != nil {
			return nil, err
		}
	}
	if err := r.node.collect(ctx); err != nil {
		return nil, err
	}
	if err := r.awaitQuiet(ctx); err != nil {
		return nil, err
	}
	if p.before, err = r.watch(ctx, r.o.before, nil, nil); err != nil {
		return nil, err
	}
	f, err := r.attack(a, name)
	if err != nil {
		return nil, err
	}
	p.during, err = r.watch(ctx, r.o.during, p, f)
	if err := errors.Join(err, f.end(r.o.kill && a.name == "vanish", &p.tally)); err != nil {
		return nil, err
	}
	if err := r.books(ctx, name, p); err != nil {
		return nil, err
	}
	if a.leaves != "" {
		if err := r.node.remove(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := r.awaitBack(ctx, p); err != nil {
		return nil, err
	}
	if err := r.node.healthy(ctx); err != nil {
		p.problems = append(p.problems, fmt.Errorf("the node is not well: %w", err))
	}
	p.judge()
	if a.leaves == "" {
		err = r.node.remove(ctx, name)
	}
	return p, err
}

// attacker is a process that attacks.
type attacker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended chan struct{} // nil, or keeps the thread that started it
}

// attack starts an attacker and returns when it has begun. It is this very program, told what to do.
func (r *run) attack(a attack, bait string) (*attacker, error) {
	text, err := json.Marshal(order{
		Attack: a.name, Listen: r.node.listen, Admin: r.node.admin, Key: r.node.key, Queue: bait, Size: r.o.size,
		Keys: filepath.Join(r.node.dir, "keys"),
	})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &attacker{cmd: exec.Command(self)}
	// An attacker's sockets need not be large, and nobody has to be told.
	f.cmd.Env = append(os.Environ(), orderEnv+"="+string(text), "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING=true",
		"GOMAXPROCS="+strconv.Itoa(max(1, r.o.processors)))
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: r.o.yield > 0}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := f.start(r.o.yield); err != nil {
		return nil, err
	}
	f.out = bufio.NewReader(out)
	if line, err := f.out.ReadString('\n'); err != nil || line != attacking+"\n" {
		return nil, errors.Join(fmt.Errorf("the attacker said %q", line), err, f.cmd.Process.Kill())
	}
	return f, nil
}

// start starts the process at a lower priority than this one's. It inherits that of the thread that starts it, which
// is kept as long as the process lives: the system kills the process when that thread ends.
func (f *attacker) start(yield int) error {
	if yield == 0 {
		return f.cmd.Start()
	}
	started := make(chan error)
	f.ended = make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with this function
		id := syscall.Gettid()
		mine, err := syscall.Getpriority(syscall.PRIO_PROCESS, id)
		const zero = 20 // the system call gives 20 less the nice value
		if err == nil {
			err = syscall.Setpriority(syscall.PRIO_PROCESS, id, min(zero-mine+yield, 19))
		}
		if err == nil {
			err = f.cmd.Start()
		}
		started <- err
		<-f.ended
	}()
	if err := <-started; err != nil {
		return err
	}
	// Where the system shares the processors out among sessions first, the nice value of a process counts within its
	// session only, and a session has one of its own.
	path := filepath.Join("/proc", strconv.Itoa(f.cmd.Process.Pid), "autogroup")
	err := os.WriteFile(path, []byte(strconv.Itoa(min(yield, 19))), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// end ends the attack and takes its tally; a killed attacker has none.
func (f *attacker) end(kill bool, into *tally) error {
	if f.ended != nil {
		defer close(f.ended)
	}
	if kill {
		err := f.cmd.Process.Kill()
		f.cmd.Wait() //nolint:errcheck // it was killed
		return err
	}
	const patience = 3 * time.Minute                                           // it ends what it has begun
	defer time.AfterFunc(patience, func() { _ = f.cmd.Process.Kill() }).Stop() // the decoder says that it is gone
	if err := f.in.Close(); err != nil {
		return err
	}
	if err := json.NewDecoder(f.out).Decode(into); err != nil {
		return errors.Join(fmt.Errorf("the attacker gave no tally within %v", patience), err, f.cmd.Wait())
	}
	return f.cmd.Wait()
}

// books looks at what the bait queue says of itself: its limits, and that every message is counted once.
func (r *run) books(ctx context.Context, name string, p *played) error {
	q, err := r.node.queue(ctx, "GET", name, "")
	if err != nil {
		return err
	}
	if q == nil || q.Live == nil {
		return fmt.Errorf("the queue %s is not there", name)
	}
	p.checkBooks(q.Live)
	return nil
}

// awaitBack waits until the node holds what it held before.
func (r *run) awaitBack(ctx context.Context, p *played) error {
	const shown = 10 * time.Second
	began := time.Now()
	for {
		l, err := r.node.look(ctx)
		if err != nil {
			return err
		}
		if p.last = l; len(p.held()) == 0 { // what is still held is not worth a collection
			if err := r.node.collect(ctx); err != nil {
				return err
			}
			if l, err = r.node.look(ctx); err != nil {
				return err
			}
		}
		p.last, p.back = l, time.Since(began)
		if p.back < shown || p.after.RSS == 0 {
			p.after = l
		}
		if len(p.above()) == 0 || p.back > r.o.back {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
