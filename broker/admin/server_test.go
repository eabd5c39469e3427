package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes: inside a bubble their deadlines run on its clock.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7444} }

// dialed starts the real server over a handler and hands out connections to it.
func dialed(t *testing.T, h http.Handler) (dial func() net.Conn) {
	l := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	s := NewServer(h)
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func() net.Conn {
		near, far := net.Pipe()
		l.accept <- far
		t.Cleanup(func() { near.Close() })
		return near
	}
}

// The limits of the port: each kind of client that does not go on is let go after its time, and not before.
func TestServerLetsGo(t *testing.T) {
	for _, c := range []struct {
		name, sent string
		after      time.Duration
		status     string
	}{
		{"silent from the start", "", 5 * time.Second, ""},
		{"half a header", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-", 5 * time.Second, "400"},
		{
			"half a body", "PUT /v1/queues/a HTTP/1.1\r\nHost: localhost\r\nX-Weida: 1\r\nContent-Length: 99\r\n\r\n{",
			15 * time.Second, "400",
		},
		{"idle after an answer", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 60 * time.Second, "200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{MutationsMax: 1})
				conn := dialed(t, r.h)()
				begin := time.Now() // the bubble's clock
				if _, err := io.WriteString(conn, c.sent); err != nil {
					t.Fatal(err)
				}
				said, err := io.ReadAll(conn)
				if err != nil {
					t.Fatal(err)
				}
				if c.status == "" && len(said) != 0 || !strings.Contains(string(said), c.status) {
					t.Errorf("answered %q, want %s", said, c.status)
				}
				if d := time.Since(begin).Round(time.Second); d != c.after {
					t.Errorf("let go after %v, want %v", d, c.after)
				}
				r.want(http.StatusCreated, "PUT", "/v1/queues/b", `{"spec":{}}`) // the place is free again
			})
		})
	}
}

// A header beyond its bound is refused before it is held, and a client that does not read does not hold a handler.
func TestServerBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		dial := dialed(t, r.h)
		conn := dial()
		go func() {
			// The server stops reading: the rest of this write ends in an error when it closes.
			_, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Pad: "+strings.Repeat("x", 1<<20))
			missed(err)
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %v, %v", answer, err)
		}

		stuck := dial()
		if _, err := io.WriteString(stuck, "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second) // on the bubble's clock
		if n, err := io.Copy(io.Discard, stuck); n != 0 || err != nil {
			t.Errorf("the server held on to a client that did not read: %d bytes, %v", n, err)
		}
	})
}

// The same over a real socket, as the node does it.
func TestServe(t *testing.T) {
	r := newRig(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(r.h)
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/v1/queues/a%2F..%2Fb", `{"spec":{}}`, http.StatusCreated},
		{"GET", "/v1/queues/a%2F..%2Fb", "", http.StatusOK},
		{"GET", "/metrics", "", http.StatusOK},
		{"GET", "/", "", http.StatusOK},
		{"DELETE", "/v1/queues/a%2F..%2Fb", "", http.StatusAccepted},
		{"PUT", "/v1/queues/b", strings.Repeat("x", 3*bodyMax), http.StatusRequestEntityTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+l.Addr().String()+c.path,
			strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(Header, "1")
		got, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != c.status {
			t.Errorf("%s %s: %d %s, %v", c.method, c.path, got.StatusCode, text, err)
		}
		got.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
