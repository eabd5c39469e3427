package admin

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// The page is whole in the binary: it names no address but this node's, and text enters it as text.
func TestPage(t *testing.T) {
	r := newRig(t, Options{})
	all := ""
	for path, kind := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"} {
		a := r.want(http.StatusOK, "GET", path, "")
		if !strings.HasPrefix(a.header.Get("Content-Type"), kind) || a.header.Get("Content-Security-Policy") != pagePolicy {
			t.Errorf("%s: headers are %v", path, a.header)
		}
		all += string(a.body)
	}
	if m := regexp.MustCompile(`(https?:)?//[a-z0-9.]+[./:]|innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|` +
		`\son[a-z]+=|<script>|<style|style=|localStorage`).FindString(all); m != "" {
		t.Errorf("the page holds %q", m)
	}
	html := string(r.want(http.StatusOK, "GET", "/", "").body)
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if m[1] != "data:," {
			r.want(http.StatusOK, "GET", "/"+strings.TrimPrefix(m[1], "/"), "")
		}
	}
	script := string(r.want(http.StatusOK, "GET", "/page.js", "").body)
	for _, m := range regexp.MustCompile(`at\("([a-z-]+)"\)`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(html, `id="`+m[1]+`"`) {
			t.Errorf("the script looks for %q, which the page does not have", m[1])
		}
	}
	r.want(http.StatusOK, "GET", "/v1/queues?limit=50", "") // what the script asks for
	r.want(http.StatusOK, "GET", "/v1/queues?limit=50&after=a%2Fb", "")
}

// Profiles are there only where they were asked for.
func TestProfiles(t *testing.T) {
	r := newRig(t, Options{Profile: true})
	for _, path := range []string{
		"/debug/pprof/", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine", "/debug/pprof/symbol",
	} {
		if a := r.want(http.StatusOK, "GET", path, ""); len(a.body) == 0 {
			t.Errorf("%s is empty", path)
		}
	}
	r.want(http.StatusNotFound, "GET", "/debug/pprof/nothing", "")
	r.refused(http.StatusNotFound, "E5009", "GET", "/debug/pprof/cmdline", "")
	r.refused(http.StatusMethodNotAllowed, "E5009", "POST", "/debug/pprof/symbol", "")
	r.refused(http.StatusForbidden, "E5009", "GET", "/debug/pprof/heap", "", "Host", "attacker.example")
}
