package endpoint

import (
	"fmt"
	"net"
	"testing"
)

// Ports that are found are different, can be listened on, and are none of those that anybody is given.
func TestFreePorts(t *testing.T) {
	const n = 50
	ports, err := FreePorts(n)
	if err != nil || len(ports) != n {
		t.Fatalf("%v, %v", ports, err)
	}
	seen := make(map[int]bool)
	for _, p := range ports {
		if seen[p] || p < freeLow || p >= freeHigh {
			t.Errorf("%d is among %v", p, ports)
		}
		seen[p] = true
		udp, err := net.ListenPacket("udp", fmt.Sprint("127.0.0.1:", p))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = udp.Close() }() // nothing was sent
	}
}
