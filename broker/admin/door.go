package admin

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"weida/broker/wire"
)

// Header is what a request that changes something has to carry. A browser lets no page of another site send it.
const Header = "X-Weida"

// foreign are the headers that a browser adds to what a page sends. They have no place on a mutation.
var foreign = []string{"Origin", "Cross-Origin", "Sec-Fetch-Site"}

// door turns away what a web page could have sent: through a name of its own that leads to the loopback interface, or
// from another site.
type door struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	turned uint64 // requests turned away, in all
	told   time.Time
	untold int // since told
}

// admit returns a *refusal for a request that must not come in.
func (d *door) admit(r *http.Request) error {
	why := ""
	switch {
	case !loopback(r.Host):
		why = "the host " + strconv.Quote(clip(r.Host)) + " is not the loopback interface: use localhost, 127.0.0.1 or [::1]"
	case !reads(r):
		for _, h := range foreign {
			if _, ok := r.Header[h]; ok {
				why = "a change must not carry the header " + h + ": it does not come from a web page"
			}
		}
		if why == "" && (len(r.Header[Header]) != 1 || r.Header.Get(Header) != "1") {
			why = "a change has to carry the header " + Header + ": 1"
		}
	}
	if why == "" {
		return nil
	}
	d.tell(r, why)
	return refuse(http.StatusForbidden, wire.BadRequest, "%s", why)
}

// tell logs a refusal, at most one line a second.
func (d *door) tell(r *http.Request, why string) {
	d.mu.Lock()
	d.turned++
	d.untold++
	now := d.now()
	n := d.untold
	quiet := now.Sub(d.told) < time.Second
	if !quiet {
		d.told, d.untold = now, 0
	}
	d.mu.Unlock()
	if !quiet {
		d.log.Warn("admin request turned away", "from", r.RemoteAddr, "method", clip(r.Method),
			"path", clip(r.URL.EscapedPath()), "why", why, "count", n)
	}
}

// count is how many requests were turned away.
func (d *door) count() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.turned
}

// loopback says whether a Host header, with or without a port, names the loopback interface.
func loopback(host string) bool {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return false
		}
		host = h
	} else if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return false
		}
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Zone() == "" && a.Unmap().IsLoopback()
}
