package admin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// More connections than the port takes push out those that have waited longest; who is being answered stays, and who
// comes is served.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		dial := dialed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				<-hold
			}
		}))
		say := func(c net.Conn, text string) {
			t.Helper()
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
		ended := func(c net.Conn) bool {
			t.Helper()
			synctest.Wait()
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, _ = c.Read(make([]byte, 1)) // nothing comes but the end
			}()
			synctest.Wait()
			select {
			case <-over:
				return true
			default:
				return false
			}
		}
		long := dial()
		say(long, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		silent := dial()
		slow := dial()
		say(slow, "GET / HTTP/1.1\r\nX-")
		for range connectionsMax - 3 {
			dial()
		}
		synctest.Wait()
		last := dial() // one too many
		if !ended(silent) {
			t.Error("who has said nothing and waited longest is still there")
		}
		dial()
		if !ended(slow) {
			t.Error("who trickles is still there")
		}
		say(last, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		for _, c := range []net.Conn{last, long} {
			if c == long {
				close(hold)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%v %v", resp, err)
			}
		}
	})
}

// Connections that end leave nothing behind.
func TestConnectionsAreForgotten(t *testing.T) {
	g := newGuests()
	for range 3 * connectionsMax {
		near, far := net.Pipe()
		g.enter(t.Context(), far)
		near.Close()
		g.changed(far, http.StateClosed)
	}
	if len(g.all) != 0 || g.waiting.Len() != 0 {
		t.Errorf("%d are remembered, %d wait", len(g.all), g.waiting.Len())
	}
}
