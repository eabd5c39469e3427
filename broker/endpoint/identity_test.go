package endpoint_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weida/broker/endpoint"
	"weida/fsync"
)

func identity(t *testing.T, dir, name string) *endpoint.Identity {
	t.Helper()
	id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// T-7: a key keeps its name for ever, and the certificate is only its vessel.
func TestIdentityStays(t *testing.T) {
	dir := t.TempDir()
	first := identity(t, dir, "n1").Fingerprint()
	if again := identity(t, dir, "n1").Fingerprint(); again != first {
		t.Errorf("loaded %v, made %v", again, first)
	}
	if other := identity(t, dir, "n2").Fingerprint(); other == first {
		t.Error("two keys with one fingerprint")
	}
	for _, name := range []string{"n1.key", "n1.crt"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", name, info.Mode(), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "n1.crt")); err != nil {
		t.Fatal(err)
	}
	if again := identity(t, dir, "n1").Fingerprint(); again != first {
		t.Errorf("with another certificate of the same key: %v, was %v", again, first)
	}
}

func TestFingerprintText(t *testing.T) {
	f := identity(t, t.TempDir(), "n").Fingerprint()
	if got, err := endpoint.ParseFingerprint(f.String()); err != nil || got != f {
		t.Errorf("%v became %v, %v", f, got, err)
	}
	digits := strings.TrimPrefix(f.String(), "sha256:")
	for _, bad := range []string{
		"", digits, "sha256:", "sha256:" + digits[1:], f.String() + "00",
		"SHA256:" + digits, "sha256:" + strings.Repeat("g", 64),
	} {
		if got, err := endpoint.ParseFingerprint(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

// Keys that must not be used are refused, told why, and left as they are.
func TestKeysThatAreRefused(t *testing.T) {
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(elliptical)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), b, 0o600) }
	}
	cases := []struct {
		name, file, says string
		spoil            func(dir string) error
	}{
		{"readable by all", "n.key", "0644", func(dir string) error { return os.Chmod(filepath.Join(dir, "n.key"), 0o644) }},
		{"readable by group", "n.key", "0640", func(dir string) error {
			return os.Chmod(filepath.Join(dir, "n.key"), 0o640)
		}},
		{"empty key", "n.key", "no PEM block", write("n.key", nil)},
		{
			"PEM of nothing", "n.key", "restore it",
			write("n.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})),
		},
		{
			"another kind of key", "n.key", "no Ed25519 key",
			write("n.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		},
		{"empty certificate", "n.crt", "remove it", write("n.crt", nil)},
		{
			"torn certificate", "n.crt", "remove it",
			write("n.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})),
		},
		{"certificate of another key", "n.crt", "another key", func(dir string) error {
			identity(t, dir, "m")
			return os.Rename(filepath.Join(dir, "m.crt"), filepath.Join(dir, "n.crt"))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			identity(t, dir, "n")
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(filepath.Join(dir, c.file))
			if err != nil {
				t.Fatal(err)
			}
			_, err = endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "n")
			var refused *endpoint.KeyError
			if !errors.As(err, &refused) || refused.Path != filepath.Join(dir, c.file) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want a *KeyError of %s that says %q", err, c.file, c.says)
			}
			if after, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || string(after) != string(before) {
				t.Errorf("%s was changed (%v)", c.file, err)
			}
		})
	}
}

func TestHugeKeyFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "n.key"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, "n"); !errors.Is(err, fsync.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
