package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// This file is attacks on the HTTP side.

// adminHost asks as a web page would, or as a name that leads to the loopback interface.
func adminHost(f *foe) {
	client := f.http()
	requests := []func(*http.Request){
		func(r *http.Request) { r.Host = "example.org" },
		func(r *http.Request) { r.Host = "127.0.0.1.example.org" },
		func(r *http.Request) { r.Header.Set("Origin", "http://example.org") },
		func(r *http.Request) { r.Header.Del("X-Weida") },
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	}
	f.each(4*f.Size, func(i int) error {
		for k, change := range requests {
			r, err := http.NewRequestWithContext(f.ctx, http.MethodPut, f.Admin+fmt.Sprintf("/v1/queues/foe-%d", k),
				strings.NewReader(`{"spec":{}}`))
			if err != nil {
				return err
			}
			r.Header.Set("X-Weida", "1")
			change(r)
			if err := f.request(client, r, http.StatusForbidden); err != nil {
				return err
			}
		}
		return nil
	})
}

// adminBodies sends more than is read.
func adminBodies(f *foe) {
	client := f.http()
	f.each(2*f.Size, func(i int) error {
		var body io.Reader = endless{}
		r, err := http.NewRequestWithContext(f.ctx, http.MethodPut, f.Admin+"/v1/queues/foe", body)
		if err != nil {
			return err
		}
		r.Header.Set("X-Weida", "1")
		want := http.StatusRequestEntityTooLarge
		switch i % 4 {
		case 0:
			r.ContentLength = 1 << 40
		case 1:
			r.Body = http.NoBody
			r.Header.Set("X-Long", strings.Repeat("x", 64<<10))
			want = http.StatusRequestHeaderFieldsTooLarge
		case 2:
			r.Body = io.NopCloser(io.LimitReader(body, 1<<20)) // as much as is read, and no JSON
			want = http.StatusBadRequest
		}
		return f.request(client, r, want)
	})
}

// endless is spaces without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func (f *foe) http() *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 64}
	f.atEnd(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 20 * time.Second}
}

// request sends one request, whose answer has to be a refusal with that status, or an end of the connection.
func (f *foe) request(c *http.Client, r *http.Request, want int) error {
	f.did("requests", 1)
	resp, err := c.Do(r)
	if err != nil {
		// A node that has said no does not read on, and the client may be told of that alone.
		var closed net.Error
		if f.ctx.Err() == nil && errors.As(err, &closed) && !closed.Timeout() {
			f.saw("connection closed")
			return nil
		}
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // read only
	f.saw(fmt.Sprintf("HTTP %d", resp.StatusCode))
	if resp.StatusCode != want {
		f.broken("%s %s was answered %s, want %d", r.Method, r.URL.Path, resp.Status, want)
	}
	return err
}

// adminSlow holds connections: with nothing, with one request and then nothing, and with headers that never end.
func adminSlow(f *foe) {
	const head = "GET /livez HTTP/1.1\r\nHost: localhost\r\n"
	firsts := []string{"", head + "\r\n", head + "X-Slow: "}
	f.each(64*f.Size, func(i int) error {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.Admin, "http://"))
		if err != nil {
			return err
		}
		hangUp := func() { _ = c.Close() } // nothing of it is kept
		defer hangUp()
		defer context.AfterFunc(f.ctx, hangUp)()
		f.did("connections", 1)
		kind := i % len(firsts)
		if _, err := io.WriteString(c, firsts[kind]); err != nil {
			return err
		}
		if kind == 2 {
			f.work.Go(func() {
				for {
					if _, err := io.WriteString(c, "x"); err != nil {
						return // the node hung up, or the attack is over
					}
					f.pause(100 * time.Millisecond)
				}
			})
		}
		_, _ = io.Copy(io.Discard, c) // until the node hangs up
		if f.ctx.Err() == nil {
			f.saw("connection closed")
		}
		return nil
	})
}
