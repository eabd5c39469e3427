package admin

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// connectionsMax bounds the connections of the port: each is a descriptor, and the store needs some.
const connectionsMax = 256

// guests are the connections of the port. A new one is always taken; beyond connectionsMax the one goes that has
// waited longest without a request being answered, so that connections which say nothing, or trickle, keep nobody out.
type guests struct {
	mu sync.Mutex
	// guarded by mu; *guest, who waited longest first
	waiting list.List
	all     map[net.Conn]*guest // guarded by mu
}

// guest is one connection.
type guest struct {
	conn  net.Conn
	place *list.Element // in waiting; nil while a request of it is answered
}

// guestKey finds a request's guest in its context.
type guestKey struct{}

func newGuests() *guests { return &guests{all: make(map[net.Conn]*guest)} }

// enter is http.Server's ConnContext.
func (g *guests) enter(ctx context.Context, c net.Conn) context.Context {
	g.mu.Lock()
	x := &guest{conn: c}
	x.place = g.waiting.PushBack(x)
	g.all[c] = x
	var out net.Conn
	if len(g.all) > connectionsMax {
		out = g.waiting.Front().Value.(*guest).conn // the new one, if all others are answered
		g.forget(out)
	}
	g.mu.Unlock()
	if out != nil {
		_ = out.Close() // it is given up
	}
	return context.WithValue(ctx, guestKey{}, x)
}

// changed is http.Server's ConnState.
func (g *guests) changed(c net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		g.mu.Lock()
		g.forget(c)
		g.mu.Unlock()
	}
}

// forget is called with mu held.
func (g *guests) forget(c net.Conn) {
	if x := g.all[c]; x != nil {
		delete(g.all, c)
		if x.place != nil {
			g.waiting.Remove(x.place)
			x.place = nil
		}
	}
}

// serve wraps a handler: while it answers a request the connection does not wait.
func (g *guests) serve(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, ok := r.Context().Value(guestKey{}).(*guest)
		if !ok {
			panic("bug: admin: a request without a connection")
		}
		g.mu.Lock()
		if x.place != nil {
			g.waiting.Remove(x.place)
			x.place = nil
		}
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			if g.all[x.conn] == x {
				x.place = g.waiting.PushBack(x)
			}
			g.mu.Unlock()
		}()
		h.ServeHTTP(w, r)
	})
}
