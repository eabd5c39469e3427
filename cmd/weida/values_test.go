package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestManifestValues: a slip in a value is told with its field and place, and what is allowed; numbers of
// bytes are read as the flags read them.
func TestManifestValues(t *testing.T) {
	const form = "kind: Queue\nmetadata: {name: orders}\nspec: {%s}\n"
	for _, c := range []struct{ spec, want string }{
		{"limits: {bytes: 4KiB, messageBytes: 2 MiB}", `{"limits":{"bytes":4096,"messageBytes":2097152}}`},
		{"drainDeadline: 90s", `{"drainDeadline":"90s"}`},
		{"limits: {bytes: null}", `{"limits":{"bytes":null}}`},
		{"limits: {bytes: 4kb}", "[3:24] spec.limits.bytes is 4kb; it has to be a number of bytes, as 65536, 64KiB or 2GiB"},
		{"limits: {messages: 4KiB}", "[3:27] spec.limits.messages is 4KiB; it has to be a whole number, 0 or more"},
		{"limits: {messages: -1}", "[3:27] spec.limits.messages is -1; it has to be a whole number, 0 or more"},
		{"limits: {messages: 1.5}", "[3:27] spec.limits.messages is 1.5; it has to be a whole number, 0 or more"},
		{"drainDeadline: 30", "[3:23] spec.drainDeadline is 30; it has to be a time: a number with a unit"},
		{"replicas: two", "[3:18] spec.replicas is two; it has to be a whole number, 0 or more"},
		{"durability: 5", "[3:20] spec.durability is 5; it has to be text"},
		{"durability: [a]", "[3:20] spec.durability has to be one text"},
		{"limits: 5", "[3:16] spec.limits is 5; it has to be fields with values"},
		{"placement: {nodes: n1}", "[3:27] spec.placement.nodes is n1; it has to be a list"},
	} {
		all, err := parseManifests(fmt.Appendf(nil, form, c.spec))
		got := ""
		if err == nil {
			got = string(all[0].spec)
		} else {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s\nwant %s", c.spec, got, c.want)
		}
		for _, internal := range []string{"Go struct", "json:", "strconv", "time:", "Manifest"} {
			if strings.Contains(got, internal) && !strings.Contains(c.want, internal) {
				t.Errorf("%s: %s", c.spec, got)
			}
		}
	}
}

// TestNodeFileValues: the same of a node file, whose numbers have no units.
func TestNodeFileValues(t *testing.T) {
	for text, want := range map[string]string{
		"messageMax: 4KiB\n": "[1:13] messageMax is 4KiB; it has to be a number of bytes without a unit",
		"trust: yes\n":       "[1:8] trust is yes; it has to be a list",
		"trust: [a]\n":       "[1:9] trust[0] is a; it has to be fields with values",
	} {
		var f nodeFile
		if err := decodeYAML("n.yaml", []byte(text), &f); err == nil || !strings.HasPrefix(err.Error(), "n.yaml: "+want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}
