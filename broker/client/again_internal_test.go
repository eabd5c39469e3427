package client

import (
	"errors"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"weida/broker/endpoint"
	"weida/broker/wire"
)

// The pause doubles up to its bound, and jitter takes any part of it.
func TestPause(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 5: 1600 * time.Millisecond, 6: 2 * time.Second,
		1 << 40: 2 * time.Second,
	} {
		if got := pause(n, 1); got != want {
			t.Errorf("pause %d is %v, want %v", n, got, want)
		}
		if got := pause(n, 0); got != 0 {
			t.Errorf("without jitter pause %d is %v", n, got)
		}
		if got := pause(n, 0.5); got != want/2 {
			t.Errorf("half of pause %d is %v", n, got)
		}
	}
}

func TestPassing(t *testing.T) {
	turned := &quic.TransportError{Remote: true, ErrorCode: 0x100 + 42}
	cases := []struct {
		err  error
		want bool
	}{
		{&LostError{Err: errors.New("gone")}, true},
		{&endpoint.UnreachableError{Err: errors.New("nobody")}, true},
		{&endpoint.UnreachableError{Err: turned}, false},
		{&endpoint.UntrustedError{}, false},
		{&ProtocolError{}, false},
		{&wire.Error{Code: wire.Stopping}, true},
		{&wire.Error{Code: wire.DiskFull}, true},
		{&wire.Error{Code: wire.UnknownQueue}, false},
		{&wire.Error{Code: wire.NotAllowed}, false},
		{&wire.Error{Code: wire.ProducerOwned}, false},
		{ErrClosed, false},
	}
	for _, c := range cases {
		if got := passing(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
