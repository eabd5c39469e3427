package broker_test

import (
	"errors"
	"io"

	"weida/broker/client"
	"weida/broker/wire"
)

// consume takes what is in a queue, n messages, and accepts them.
func (r *clusterRig) consume(c *client.Client, queue string, n int) (bodies []string) {
	r.t.Helper()
	if n == 0 {
		return nil
	}
	k, err := c.Consumer(r.ctx, queue, client.ConsumerOptions{Subscription: "s"})
	if err != nil {
		r.t.Fatal(err)
	}
	defer k.Close()
	settled, seen := 0, map[uint64]bool{}
	for d, err := range k.Deliveries(r.ctx) {
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := io.ReadAll(d.Body())
		if err != nil {
			r.t.Fatal(err)
		}
		if !seen[d.Offset] {
			seen[d.Offset] = true
			bodies = append(bodies, string(b))
		}
		var refused *wire.Error
		err = d.Accept(r.ctx)
		switch {
		case err == nil:
			settled++
		case errors.As(err, &refused) && (refused.Code == wire.NoQuorum || refused.Code == wire.LeaderChanged):
			// In the moment of a change of leaders: it comes again.
		default:
			r.t.Fatal(err)
		}
		if settled == n {
			break
		}
	}
	return bodies
}
