package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// A node file never names a queue, and an unknown key is shown with the nearest known one (T-26).
func TestNodeFileKeys(t *testing.T) {
	for text, want := range map[string]string{
		"name: n1\nqueues: [demo]\n":       "queues are not configured in a node file",
		"name: n1\nlissten: 127.0.0.1:0\n": `did you mean "listen"?`,
		"name: n1\nadmins: x\n":            `did you mean "admin"?`,
	} {
		var f nodeFile
		err := decodeYAML("node.yaml", []byte(text), &f)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "nothing was started") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// Any bytes are a node file or an error, and what was read is written in a form that reads the same.
func FuzzNodeFile(f *testing.F) {
	f.Add([]byte("name: n1\ndata: n1\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\n" +
		"trust:\n- fingerprint: sha256:00\n  role: admin\n"))
	f.Add([]byte("{name: n1, messageMax: 100}"))
	f.Add([]byte("name: &a [*a]"))
	f.Add([]byte("queues: [demo]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<12 {
			t.Skip("longer than it takes to find anything")
		}
		var file nodeFile
		if err := decodeYAML("node.yaml", b, &file); err != nil {
			return
		}
		again, err := yaml.Marshal(file)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", file, err)
		}
		var back nodeFile
		if err := decodeYAML("node.yaml", again, &back); err != nil {
			t.Fatalf("%q was written as %q: %v", b, again, err)
		}
		if len(file.Trust) == 0 {
			file.Trust = nil
		}
		if len(back.Trust) == 0 {
			back.Trust = nil
		}
		if !reflect.DeepEqual(file, back) {
			t.Fatalf("%+v came back as %+v by %q", file, back, again)
		}
	})
}
