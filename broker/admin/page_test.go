package admin

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
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

// A real browser draws the page: numbers, problems and queues stand in it, and a name is text whatever it holds. The
// browser runs on virtual time.
func TestPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here:", err)
	}
	r := filled(t)
	evil := `<img src=x onerror="document.title='run'">`
	r.want(http.StatusCreated, "PUT", "/v1/queues/"+url.PathEscape(evil), `{"spec":{}}`)
	s := httptest.NewServer(r.h)
	defer s.Close()
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=5000", "--dump-dom", s.URL)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dom := string(out)
	for _, want := range []string{
		"<title>weida n1</title>", "One thing is not as it should be.", "queue orders: Its log is read only.",
		`<th scope="row">orders</th>`, `<th scope="row">odd "name"\</th>`, "a flush failed", "too_large",
		"4 in the registry: 1 Deleting, 3 Pending.", "&lt;img src=x onerror=", "12.5 KiB", "weida v0.1.0, commit 4f1c9ab",
	} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if strings.Contains(dom, "<img") {
		t.Error("a name became an element")
	}
	if t.Failed() {
		t.Log(dom)
	}
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
