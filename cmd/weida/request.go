package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// do sends one request and reads its answer. What may have been done is never called refused or
// unreachable: it is indeterminate. Where nothing listens the next address is tried.
func (a *api) do(ctx context.Context, method, path string, q url.Values, body []byte) (
	b []byte, status int, err error,
) {
	for range a.bases {
		b, status, err = a.once(ctx, method, path, q, body)
		var unreachable *endpoint.UnreachableError
		if !errors.As(err, &unreachable) || !nothingThere(err) {
			break
		}
		a.bases = append(a.bases[1:], a.bases[0])
	}
	return b, status, err
}

// nothingThere says that a request was never sent.
func nothingThere(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// send sends a request to the address that is spoken to.
func (a *api) send(ctx context.Context, c *http.Client, method, path string, q url.Values, body []byte) (
	*http.Response, error,
) {
	target := a.base() + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	sent := method
	if method == asking {
		sent = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, sent, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method != http.MethodGet {
		req.Header.Set("X-Weida", "1")
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, a.unanswered(method, err)
	}
	return res, nil
}

func (a *api) once(ctx context.Context, method, path string, q url.Values, body []byte) ([]byte, int, error) {
	res, err := a.send(ctx, a.http, method, path, q, body)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or of no more use
	b, err := io.ReadAll(io.LimitReader(res.Body, apiAnswerMax+1))
	if err != nil {
		return nil, 0, a.unanswered(method, err)
	}
	if len(b) > apiAnswerMax {
		return nil, 0, a.unsure(method, a.strange(fmt.Errorf("an answer of more than %d bytes", apiAnswerMax)))
	}
	if res.StatusCode/100 == 2 {
		return bytes.TrimSpace(b), res.StatusCode, nil
	}
	return nil, res.StatusCode, a.refusal(method, res.Status, res.StatusCode, b)
}

// refusal is what a node answered instead of a result.
func (a *api) refusal(method, text string, status int, b []byte) error {
	refused := &apiError{}
	if json.Unmarshal(b, refused) == nil && refused.Code != "" && refused.Message != "" {
		return refused
	}
	err := a.strange(fmt.Errorf("%s", text))
	if status/100 == 5 {
		err = a.unsure(method, err)
	}
	return err
}

// unanswered tells "never sent" from "sent, and nobody knows".
func (a *api) unanswered(method string, err error) error {
	var op *net.OpError
	var dial bool
	if errors.As(err, &op) {
		dial = op.Op == "dial"
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	unreachable := &endpoint.UnreachableError{Addr: a.base(), Err: err}
	if dial {
		return unreachable
	}
	return a.unsure(method, unreachable)
}

// strange is an answer that no node gives.
func (a *api) strange(err error) error {
	return &exitError{statusUnreachable, fmt.Errorf("what answers at %s is no weida node of this version: %w; "+
		"nothing was changed; correct `admin` in the context file", a.base(), err)}
}

// unsure makes an error of a request that changes something indeterminate.
func (a *api) unsure(method string, err error) error {
	if method == http.MethodGet || method == asking {
		return err
	}
	return &wire.Error{Code: wire.MutationIndeterminate, Detail: strings.TrimSuffix(err.Error(), ".")}
}
