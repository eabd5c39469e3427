package powercut

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// errIO is what a device says of whatever it does not do.
var errIO = errors.New("powercut: input/output error, as ordered")

// Fault says which writes fail. The zero value is all of them.
type Fault struct {
	// Pattern is in the bytes of those that fail; nil is any.
	Pattern []byte
	// Count is how many fail before the device is well again; 0 is no end.
	Count int
}

// Stats counts what a device was asked since New.
type Stats struct {
	Writes    int   // carried out
	Bytes     int64 // of them
	Flushes   int   // carried out
	Failed    int   // writes and flushes that failed by order
	Unflushed int64 // bytes that no flush has reached now
}

// device is the disk behind its interface. A life is what lies between two cuts; who came in one is dead in the next.
type device struct {
	size int64

	mu     sync.Mutex
	cache  *cache        // guarded by mu
	rng    *rand.Rand    // guarded by mu; what a cut keeps
	life   uint64        // guarded by mu
	dead   chan struct{} // guarded by mu; closed by the cut that ends the life
	faults []Fault       // guarded by mu
	bad    int           // guarded by mu; flushes that are yet to fail
	lies   bool          // guarded by mu; flushes do nothing
	slow   time.Duration // guarded by mu; how much longer writes and flushes take
	stall  chan struct{} // guarded by mu; nil, or closed when the device goes on
	hold   []byte        // guarded by mu; what is in writes that wait for held
	held   chan struct{} // guarded by mu; nil, or closed when they go on
	stats  Stats         // guarded by mu
	broken error         // guarded by mu; the image could not be written, which no test ordered
}

func newDevice(m media, size, cache int64, seed uint64) *device {
	return &device{
		size: size, cache: newCache(m, cache), rng: rand.New(rand.NewPCG(seed, 0)), life: 1, dead: make(chan struct{}),
	}
}

// wait is what a request has to wait for while the device is slow or stalled.
func (v *device) wait(life uint64, reads bool) error {
	for {
		v.mu.Lock()
		dead, stall, slow := v.dead, v.stall, v.slow
		over := life != v.life
		v.mu.Unlock()
		switch {
		case over:
			return errIO
		case stall != nil:
			select {
			case <-stall:
				continue
			case <-dead:
				return errIO
			}
		case slow > 0 && !reads:
			select {
			case <-time.After(slow):
			case <-dead:
			}
		}
		return nil
	}
}

func (v *device) read(life uint64, b []byte, off int64) error {
	if err := v.wait(life, true); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if life != v.life || !v.whole(b, off) {
		return errIO
	}
	return v.mark(v.cache.read(b, off))
}

// holdBack waits while writes like this one are held.
func (v *device) holdBack(data []byte) {
	v.mu.Lock()
	held, dead := v.held, v.dead
	if held != nil && !bytes.Contains(data, v.hold) {
		held = nil
	}
	v.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-dead:
	}
}

// write takes a copy of data.
func (v *device) write(life uint64, data []byte, off int64) error {
	v.holdBack(data)
	if err := v.wait(life, false); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case life != v.life || !v.whole(data, off):
		return errIO
	case v.refuses(data):
		v.stats.Failed++
		return errIO
	}
	v.stats.Writes++
	v.stats.Bytes += int64(len(data))
	return v.mark(v.cache.write(bytes.Clone(data), off))
}

// mark keeps, with mu held, an error that is not the device's but the machine's: what follows shows nothing.
func (v *device) mark(err error) error {
	if v.broken == nil {
		v.broken = err
	}
	return err
}

// whole says whether bytes at off are sectors of the device.
func (v *device) whole(b []byte, off int64) bool {
	return off >= 0 && off%Sector == 0 && len(b)%Sector == 0 && off+int64(len(b)) <= v.size
}

// refuses says, with mu held, whether a fault takes this write.
func (v *device) refuses(data []byte) bool {
	for i := range v.faults {
		f := &v.faults[i]
		if !bytes.Contains(data, f.Pattern) {
			continue
		}
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				v.faults = append(v.faults[:i], v.faults[i+1:]...)
			}
		}
		return true
	}
	return false
}

func (v *device) flush(life uint64) error {
	if err := v.wait(life, false); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case life != v.life:
		return errIO
	case v.bad > 0:
		v.bad--
		v.stats.Failed++
		return errIO
	}
	v.stats.Flushes++
	if v.lies {
		return nil
	}
	return v.mark(v.cache.flush())
}

// cut ends the life.
func (v *device) cut(k Keep) Loss {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.life++
	close(v.dead)
	v.dead, v.stall, v.held = make(chan struct{}), nil, nil
	l, err := v.cache.cut(k, v.rng)
	_ = v.mark(err) // Remount and Close tell it
	return l
}

// now is the present life.
func (v *device) now() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.life
}

// order changes what the device does from now on.
func (v *device) order(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

func (v *device) heal() {
	v.faults, v.bad, v.lies, v.slow = nil, 0, false, 0
	if v.stall != nil {
		close(v.stall)
		v.stall = nil
	}
	if v.held != nil {
		close(v.held)
		v.held = nil
	}
}
