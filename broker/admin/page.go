package admin

import (
	"embed"
	"net/http"
	"net/http/pprof"
	"strings"

	"weida/broker/wire"
)

//go:embed page
var pageFiles embed.FS

// pages are the files of the page for people, by path.
var pages = map[string]struct{ file, kind string }{
	"/":         {"page/index.html", "text/html; charset=utf-8"},
	"/page.css": {"page/page.css", "text/css; charset=utf-8"},
	"/page.js":  {"page/page.js", "text/javascript; charset=utf-8"},
}

// pagePolicy lets the page load and ask nothing but this node.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func page(w http.ResponseWriter, c *call) error {
	p := pages[c.URL.EscapedPath()]
	body, err := pageFiles.ReadFile(p.file)
	if err != nil {
		panic("bug: admin: " + err.Error())
	}
	w.Header().Set("Content-Security-Policy", pagePolicy)
	write(w, http.StatusOK, p.kind, body)
	return nil
}

// profile serves net/http/pprof.
func profile(w http.ResponseWriter, r *http.Request) error {
	serve := pprof.Index // it finds the named profiles too
	switch strings.TrimPrefix(r.URL.Path, profilePath) {
	case "cmdline":
		return refuse(http.StatusNotFound, wire.BadRequest, "the command line is not shown")
	case "profile":
		serve = pprof.Profile
	case "symbol":
		serve = pprof.Symbol
	case "trace":
		serve = pprof.Trace
	}
	serve(w, r)
	return nil
}

const profilePath = "/debug/pprof/"
