package admin

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// Large bodies one after another use one memory: each anew was five times its size, and kept the collector busy.
func TestBodyMemoryIsUsedAgain(t *testing.T) {
	h := NewHandler(nil, Options{})
	body := strings.Repeat(" ", bodyMax)
	put := func() {
		r := httptest.NewRequest(http.MethodPut, "http://localhost/v1/queues/a", strings.NewReader(body))
		r.Header.Set(Header, "1")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
			t.Fatalf("answered %d: %s", w.Code, w.Body)
		}
	}
	put()
	const requests = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range requests {
		put()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / requests; each > bodyMax {
		t.Errorf("a body of %d bytes takes %d bytes of new memory", bodyMax, each)
	}
}
