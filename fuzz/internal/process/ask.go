package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weida/broker/admin"
	"weida/broker/wire"
)

// askMax bounds one request. A change that has no answer by then may have been made.
const askMax = 20 * time.Second

// Asker is a client for AskBy that connects as dial says.
func Asker(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: askMax}
}

// A connection of an earlier life must not make the client send a change twice.
var asker = Asker(nil)

// Reply is an answer of a node's HTTP side.
type Reply struct {
	Status  int
	Code    wire.Code       // of a refusal
	Message string          // likewise
	Now     json.RawMessage // likewise: the resource as it stands
	Body    []byte          // all of it
}

// Ask sends one request to the HTTP side at base. A refusal is a Reply; an error is that there was none.
func Ask(ctx context.Context, base, method, path string, body any) (r Reply, err error) {
	return AskBy(ctx, asker, base, method, path, body)
}

// AskBy is Ask by a client of the caller's own, which has to be without keep-alive and with a bound.
func AskBy(ctx context.Context, by *http.Client, base, method, path string, body any) (r Reply, err error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return r, err
		}
		in = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, base+path, in)
	if err != nil {
		return r, err
	}
	request.Header.Set(admin.Header, "1")
	response, err := by.Do(request)
	if err != nil {
		return r, err
	}
	defer func() { _ = response.Body.Close() }() // read only
	r.Status = response.StatusCode
	if r.Body, err = io.ReadAll(response.Body); err != nil || r.Status < http.StatusBadRequest {
		return r, err
	}
	var e struct {
		Code, Message string
		Now           json.RawMessage
	}
	if err := json.Unmarshal(r.Body, &e); err != nil {
		return r, fmt.Errorf("%s %s: %w: %s", method, path, err, r.Body)
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(e.Code, "E"), 10, 32)
	r.Code, r.Message, r.Now = wire.Code(n), e.Message, e.Now
	return r, err
}
