package broker

import (
	"net"
	"net/http"
	"sync"
	"testing"
)

// A request that comes as soon as the HTTP side listens is answered: the node is whole by then. (Under
// -race this shows a node that is not.)
func TestAdminAnswersFromTheFirstMoment(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			reached := false
			for {
				select {
				case <-stop:
					return
				default:
				}
				answer, err := http.Get("http://" + addr + "/readyz")
				switch {
				case err == nil:
					reached = true
					if err := answer.Body.Close(); err != nil {
						t.Error(err)
					}
				case reached:
					t.Errorf("no answer: %v", err)
					return
				}
			}
		})
	}
	r := newRig(t, func(c *Config) { c.Admin = addr })
	close(stop)
	asking.Wait()
	r.close()
}
