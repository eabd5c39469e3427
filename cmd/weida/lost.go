package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"weida/broker/client"
	"weida/broker/wire"
)

// tellLost says that a connection is made again, while that is tried.
func tellLost(err error, patience time.Duration) {
	var lost *client.LostError
	var refused *wire.Error
	cause := err.Error()
	if errors.As(err, &refused) && refused.To != nil {
		fmt.Fprintf(os.Stderr, "another node leads the queue now (%s), going on there\n", refused.To.Addr())
		return
	}
	switch {
	case errors.As(err, &lost):
		cause = lost.Err.Error()
	case errors.As(err, &refused): // the rest of a code's text is of one message
		i, _ := wire.Lookup(refused.Code)
		cause = cmp.Or(strings.TrimSuffix(i.Meaning, "."), refused.Code.String())
	}
	fmt.Fprintf(os.Stderr, "connection lost (%s), trying again for %v\n", cause, patience)
}

// bodyError is a large body that did not come to its end.
type bodyError struct {
	d   *client.Delivery
	err error
}

func (e *bodyError) Error() string {
	return fmt.Sprintf("the connection was lost inside the body of %s/%d (%d bytes), and what was written of it is "+
		"not whole; it was not settled, so it stays in the queue; a consumer gets it again, with a higher attempt",
		e.d.Queue, e.d.Offset, e.d.Length)
}

func (e *bodyError) Unwrap() error { return e.err }

// bodyOf is a delivery's body. What a broker that was lost left undone is told apart from what is wrong
// with the body, or with where it is written to.
type bodyOf struct{ d *client.Delivery }

func (b bodyOf) Read(p []byte) (int, error) {
	n, err := b.d.Body().Read(p)
	var digest *client.DigestError
	var refused *wire.Error
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, client.ErrBodyGone), errors.As(err, &digest),
		errors.As(err, &refused):
		return n, err
	}
	return n, &bodyError{b.d, err}
}

// tellStale says which deliveries are not settled, or may not be, those that are alike in one line. The
// error is told already.
func tellStale(talk io.Writer, queue string, stale []client.Stale) error {
	worst := 0
	for len(stale) > 0 {
		n := 1
		for n < len(stale) && stale[n].Err.Error() == stale[0].Err.Error() {
			n++
		}
		low, high := stale[0].Offset, stale[0].Offset
		for _, s := range stale[:n] {
			low, high = min(low, s.Offset), max(high, s.Offset)
		}
		which := fmt.Sprintf("%s: the delivery of offset %d", queue, low)
		if n > 1 {
			which = fmt.Sprintf("%s: %d deliveries, of offsets %d to %d,", queue, n, low, high)
		}
		if err := stale[0].Err; err.Code == wire.ConnectionLost {
			fmt.Fprintf(talk, "%s may not be settled: the connection was lost before the answer came; what is not settled "+
				"comes again, with a higher attempt\n", which)
			worst = worse(worst, statusIndeterminate)
		} else {
			fmt.Fprintf(talk, "%s had no settlement: %v\n", which, err)
			worst = worse(worst, statusRefused)
		}
		stale = stale[n:]
	}
	if worst == 0 {
		return nil
	}
	return &exitError{status: worst}
}

// consumerWords says in a consumer's words what a lost connection means, once.
func consumerWords(err error) error {
	var words []error
	var lost *client.LostError
	var refused *wire.Error
	var body *bodyError
	inBody := errors.As(err, &body)
	for _, e := range flat(err) {
		switch {
		case errors.As(e, &body):
			e = &exitError{statusUnreachable, body}
		case errors.As(e, &lost) && inBody:
			continue
		case errors.As(e, &lost):
			e = &lostConsumer{lost}
		case errors.As(e, &refused) && refused.Code == wire.Stopping:
			e = &exitError{statusUnreachable, errStopping}
		}
		words = append(words, e)
	}
	return distinct(words...)
}

// errStopping is a node that ended a consumer because it stops.
var errStopping = errors.New("the node is stopping; what was not settled stays in the queue and comes again, with a " +
	"higher attempt; start the command again when the node is back")

// lostConsumer is a LostError for who consumes.
type lostConsumer struct{ lost *client.LostError }

func (e *lostConsumer) Error() string {
	return fmt.Sprintf("the connection to %s ended: %v; what was not settled stays in the queue and comes again, with a "+
		"higher attempt; start the command again", e.lost.Addr, e.lost.Err)
}

func (e *lostConsumer) Unwrap() error { return e.lost }
