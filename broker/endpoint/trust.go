package endpoint

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
)

// Role is what a trusted key may do.
type Role string

// The roles.
const (
	RoleClient Role = "client"
	RoleAdmin  Role = "admin"
	RoleNode   Role = "node"
)

// Valid says whether the role is one of those above.
func (r Role) Valid() bool { return r == RoleClient || r == RoleAdmin || r == RoleNode }

// Trust is a set of pinned keys with their roles. It never changes.
type Trust struct{ roles map[Fingerprint]Role }

// NewTrust returns a trust set of exactly these keys.
func NewTrust(roles map[Fingerprint]Role) *Trust { return &Trust{maps.Clone(roles)} }

// With returns a trust set of these keys besides.
func (t *Trust) With(roles map[Fingerprint]Role) *Trust {
	all := maps.Clone(t.roles)
	maps.Copy(all, roles)
	return &Trust{all}
}

// Role returns what the key may do, and whether it is trusted at all.
func (t *Trust) Role(f Fingerprint) (Role, bool) {
	if t == nil {
		return "", false
	}
	r, ok := t.roles[f]
	return r, ok
}

// UntrustedError is a peer whose key is not trusted here, or not for this.
type UntrustedError struct {
	Peer   Fingerprint
	Role   Role // the role it has, if any
	Wanted string
}

func (e *UntrustedError) Error() string {
	if e.Role == "" {
		return fmt.Sprintf("the peer proved key %v, which is not in the trust list; nothing was sent to it; "+
			"if it is the right one, add it to the list with a role", e.Peer)
	}
	return fmt.Sprintf("the peer proved key %v, which is trusted as %s and not as %s; nothing was sent to it",
		e.Peer, e.Role, e.Wanted)
}

// errNoCertificate is a peer that proved nothing.
var errNoCertificate = errors.New("the peer showed no certificate; nothing was sent to it")

// verify authorizes a handshake. crypto/tls calls it on every connection, a resumed one too.
func verify(t *Trust, allowed func(Role) bool, wanted string) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errNoCertificate
		}
		peer := fingerprintOf(s.PeerCertificates[0])
		role, ok := t.Role(peer)
		if !ok || !allowed(role) {
			return &UntrustedError{Peer: peer, Role: role, Wanted: wanted}
		}
		return nil
	}
}

// tlsConfig pins keys, not names: the chain is not checked because trust does not come from one. The
// handshake still proves that the peer holds the certificate's key.
// Callers set VerifyConnection.
func tlsConfig(id *Identity, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{id.cert},
		NextProtos:             protocols,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // VerifyConnection pins the key itself
		SessionTicketsDisabled: true,
	}
}
