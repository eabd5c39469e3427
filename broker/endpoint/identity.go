package endpoint

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"strings"
	"time"

	"weida/fsync"
)

// Fingerprint is the SHA-256 of a public key in its SubjectPublicKeyInfo form: the identity of a node or client.
type Fingerprint [sha256.Size]byte

const fingerprintPrefix = "sha256:"

func (f Fingerprint) String() string { return fingerprintPrefix + hex.EncodeToString(f[:]) }

// ParseFingerprint reads the form that String writes.
func ParseFingerprint(s string) (f Fingerprint, err error) {
	digits, ok := strings.CutPrefix(s, fingerprintPrefix)
	b, herr := hex.DecodeString(digits)
	if !ok || herr != nil || len(b) != len(f) {
		return f, fmt.Errorf("%q is no fingerprint: it is %s and 64 hexadecimal digits", s, fingerprintPrefix)
	}
	copy(f[:], b)
	return f, nil
}

// Identity is a key pair with the certificate that carries it.
type Identity struct {
	cert        tls.Certificate
	fingerprint Fingerprint
}

// Fingerprint names the identity.
func (i *Identity) Fingerprint() Fingerprint { return i.fingerprint }

// KeyError is a key that may not be used.
type KeyError struct {
	Path  string
	Cause string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("%s: %s; it was not used and not changed", e.Path, e.Cause)
}

const keyFileMax = 16 << 10

// LoadOrCreateIdentity reads dir/name.key and dir/name.crt, or makes both, flushed, if there is no key.
// A key that others can read is refused.
func LoadOrCreateIdentity(files fsync.FS, dir, name string) (*Identity, error) {
	keyPath := filepath.Join(dir, name+".key")
	keyPEM, err := fsync.ReadFile(files, keyPath, keyFileMax)
	if errors.Is(err, fs.ErrNotExist) {
		if keyPEM, err = createKey(files, dir, name); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if err := private(keyPath); err != nil {
		return nil, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, &KeyError{keyPath, err.Error() + "; restore it from a copy, or move it away and a new identity is made"}
	}
	return loadCertificate(files, dir, name, key)
}

// private refuses a key file that group or others may read.
func private(path string) error {
	mode, err := fsync.Mode(path)
	if err != nil {
		return err
	}
	if mode = mode.Perm(); mode&0o077 != 0 {
		return &KeyError{path, fmt.Sprintf("the private key is open to others (mode %#o); "+
			"if nobody else can have read it: chmod 600 it", mode)}
	}
	return nil
}

func createKey(files fsync.FS, dir, name string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return b, fsync.WriteFileAtomic(files, dir, name+".key", b)
}

// ParseKey reads a secret key as it stands in a file NAME.key: PKCS #8 in a PEM block. The error does not show its
// bytes.
func ParseKey(b []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("it holds no PEM block")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("it is no Ed25519 key")
	}
	return key, nil
}

// loadCertificate reads the certificate, or makes it: it says nothing that the key does not.
func loadCertificate(files fsync.FS, dir, name string, key ed25519.PrivateKey) (*Identity, error) {
	path := filepath.Join(dir, name+".crt")
	b, err := fsync.ReadFile(files, path, keyFileMax)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = createCertificate(key, name); err == nil {
			err = fsync.WriteFileAtomic(files, dir, name+".crt", b)
		}
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, &KeyError{path, "it holds no PEM block; remove it and it is made again from the key"}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, &KeyError{path, err.Error() + "; remove it and it is made again from the key"}
	}
	if pub, ok := leaf.PublicKey.(ed25519.PublicKey); !ok || !pub.Equal(key.Public()) {
		return nil, &KeyError{path, "it is the certificate of another key; remove it and it is made again"}
	}
	return identityOf(key, leaf), nil
}

func identityOf(key ed25519.PrivateKey, leaf *x509.Certificate) *Identity {
	return &Identity{
		cert:        tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: crypto.Signer(key), Leaf: leaf},
		fingerprint: fingerprintOf(leaf),
	}
}

// NewIdentity makes an identity that is nowhere but in memory, and ends with the process.
func NewIdentity(name string) (*Identity, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	b, err := createCertificate(key, name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	return identityOf(key, leaf), nil
}

// derive makes a secret of the identity for one purpose: the same at every start, and nobody else's.
func (i *Identity) derive(purpose string) (secret [32]byte, err error) {
	key, ok := i.cert.PrivateKey.(ed25519.PrivateKey)
	if !ok {
		panic("bug: endpoint: an identity without an Ed25519 key")
	}
	b, err := hkdf.Key(sha256.New, key.Seed(), nil, "weida "+purpose, len(secret))
	copy(secret[:], b)
	return secret, err
}

func fingerprintOf(c *x509.Certificate) Fingerprint { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

func createCertificate(key ed25519.PrivateKey, name string) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "weida " + name},
		NotBefore:    time.Now().Add(-24 * time.Hour), // clocks differ
		NotAfter:     time.Now().AddDate(100, 0, 0),   // trust ends by taking the fingerprint off the list
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
