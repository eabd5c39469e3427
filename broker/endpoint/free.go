package endpoint

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports that FreePorts looks among: above the well-known ones, and below those that systems give out by themselves.
const (
	freeLow  = 10_000
	freeHigh = 32_768
)

// FreePorts finds n different ports of the loopback interface that nobody has, neither for UDP nor for TCP. They are
// none of those that the system gives to whoever asks for any: so a node that is stopped finds its own free again.
func FreePorts(n int) (ports []int, err error) {
	var held []io.Closer
	defer func() {
		for _, c := range held {
			_ = c.Close() // nothing was sent, and nobody came
		}
	}()
	for tries := 0; len(ports) < n; tries++ {
		port := freeLow + rand.IntN(freeHigh-freeLow)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		udp, uerr := net.ListenPacket("udp", addr)
		if uerr == nil {
			held = append(held, udp)
		}
		tcp, terr := net.Listen("tcp", addr)
		if terr == nil {
			held = append(held, tcp)
		}
		switch {
		case uerr == nil && terr == nil:
			ports = append(ports, port)
		case tries > 100*n:
			return nil, fmt.Errorf("no free ports from %d to %d on 127.0.0.1: %w", freeLow, freeHigh-1, errors.Join(uerr, terr))
		}
	}
	return ports, nil
}
