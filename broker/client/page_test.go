package client_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weida/broker/endpoint"
	"weida/broker/queue"
)

// The protocol's page has the numbers of a connection as the code has them. Its frames are looked at in
// broker/wire.
func TestPageHasTheNumbers(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ") // however it is wrapped
	for _, says := range []string{
		"ALPN `" + endpoint.ALPNMessaging + "`",
		fmt.Sprintf("| %d bidirectional, %d unidirectional |", endpoint.StreamsMax, endpoint.BodyStreamsMax),
		fmt.Sprintf("| %d unidirectional, none bidirectional |", endpoint.BodyStreamsMax),
		fmt.Sprintf("| ends after %v; %v |", endpoint.HandshakeIdle, endpoint.IdleMax),
		fmt.Sprintf("| %d or more above `low` |", queue.SequencesMax),
		fmt.Sprintf("more than %d that are not settled", queue.UnsettledMax),
	} {
		if !strings.Contains(page, says) {
			t.Errorf("the page does not say %q", says)
		}
	}
}
