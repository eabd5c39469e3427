package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"weida/broker/control"
	"weida/fsync"
)

// manifest is one resource that a user wants, as it was written down.
type manifest struct {
	kind    kindInfo
	name    string
	version uint64 // metadata.resourceVersion; 0 is none
	spec    json.RawMessage
}

// manifestMax bounds one file, in bytes.
const manifestMax = 16 << 20

// queueManifest and connectorManifest name every key that may stand in a document. What only a node sets
// is not looked at, so that the output of get can be applied.
type queueManifest struct {
	Kind     control.Kind      `json:"kind"`
	Metadata control.Metadata  `json:"metadata"`
	Spec     control.QueueSpec `json:"spec"`
	Status   any               `json:"status"`
	Live     any               `json:"live"`
	Changed  any               `json:"changed"`
}

// manifestHead are the keys of every document.
type manifestHead struct {
	Kind     control.Kind     `json:"kind"`
	Metadata control.Metadata `json:"metadata"`
	Spec     any              `json:"spec"`
	Status   any              `json:"status"`
	Live     any              `json:"live"`
	Changed  any              `json:"changed"`
}

type connectorManifest struct {
	Kind     control.Kind          `json:"kind"`
	Metadata control.Metadata      `json:"metadata"`
	Spec     control.ConnectorSpec `json:"spec"`
	Status   any                   `json:"status"`
	Live     any                   `json:"live"`
	Changed  any                   `json:"changed"`
}

// body is what is sent for it.
func (m *manifest) body() ([]byte, error) {
	meta := map[string]any{"name": m.name}
	if m.version != 0 {
		meta["resourceVersion"] = m.version
	}
	return json.Marshal(map[string]any{"kind": m.kind.kind, "metadata": meta, "spec": m.spec})
}

// String is what answers call the resource.
func (m *manifest) String() string { return m.kind.word + "/" + m.name }

// readManifests reads all documents of all files, before anything is sent.
func readManifests(paths []string) (all []*manifest, err error) {
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return nil, fmt.Errorf("%w; nothing was changed", err)
		}
		for _, file := range files {
			b, name, err := readManifestFile(file)
			if err != nil {
				return nil, fmt.Errorf("%w; nothing was changed", err)
			}
			some, err := parseManifests(b)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\nnothing was changed", name, err)
			}
			all = append(all, some...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no resource in it; nothing was changed; a document has kind, metadata.name and spec",
			strings.Join(paths, ", "))
	}
	return all, nil
}

// manifestExtensions are those of the files that are read of a directory.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

// manifestFiles are the files that a path names: itself, or those in a directory, sorted by name.
func manifestFiles(path string) (files []string, err error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(manifestExtensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json file in it", path)
	}
	return files, nil
}

func readManifestFile(path string) (b []byte, name string, err error) {
	if path != "-" {
		b, err = fsync.ReadFile(fsync.OS(), path, manifestMax)
		return b, path, err
	}
	b, err = io.ReadAll(io.LimitReader(os.Stdin, manifestMax+1))
	if err == nil && len(b) > manifestMax {
		err = fmt.Errorf("standard input has more than %d bytes", manifestMax)
	}
	return b, "standard input", err
}

// parseManifests reads the documents of one file: YAML, or JSON objects one after another.
func parseManifests(b []byte) (all []*manifest, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		return parseYAML(b)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	for {
		var one json.RawMessage
		err := dec.Decode(&one)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil && len(all) == 0:
			return parseYAML(b) // YAML in flow style, or a slip that its parser shows better
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", len(all)+1, err)
		}
		// JSON is YAML but for tabs; lines and columns stay what they are in the file.
		before := b[:int(dec.InputOffset())-len(one)]
		some, err := parseYAML(append(blank(before), bytes.ReplaceAll(one, []byte("\t"), []byte(" "))...))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
}

// blank is as many lines, and columns in the last, as b.
func blank(b []byte) []byte {
	lines := bytes.Count(b, []byte("\n"))
	return append(bytes.Repeat([]byte("\n"), lines), bytes.Repeat([]byte(" "), len(b)-bytes.LastIndexByte(b, '\n')-1)...)
}

// parseYAML reads documents. They are taken apart here: the parser drops the one that follows a document
// of comments only.
func parseYAML(b []byte) (all []*manifest, err error) {
	begin := 0
	for _, end := range append(documentEnds(b), len(b)) {
		text := append(blank(b[:begin]), b[begin:end]...)
		begin = end
		if bytes.HasPrefix(b[begin:], []byte("---")) {
			begin += len("---")
		}
		if !hasContent(text) {
			continue
		}
		file, err := parser.ParseBytes(text, 0)
		if err != nil {
			return nil, err
		}
		if len(file.Docs) != 1 || file.Docs[0].Body == nil {
			return nil, fmt.Errorf("document %d cannot be read: it is no single YAML mapping", len(all)+1)
		}
		m, err := parseDocument(file.Docs[0].Body)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// documentEnds are the positions of the lines that begin with ---, which nothing else does in YAML.
func documentEnds(b []byte) (ends []int) {
	pos := 0
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("---"))
		if ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			ends = append(ends, pos)
		}
		pos += len(line)
	}
	return ends
}

// hasContent tells a document from blank lines and comments.
func hasContent(b []byte) bool {
	for line := range bytes.Lines(b) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "..." {
			return true
		}
	}
	return false
}

var manifestValues = valueCheck{tag: "json", units: true}

func parseDocument(node ast.Node) (*manifest, error) {
	at := node.GetToken().Position
	if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 { // its own token is the first colon
		at = m.Values[0].Key.GetToken().Position
	}
	where := fmt.Sprintf("[%d:%d]", at.Line, at.Column)
	var head manifestHead
	if err := manifestValues.check(node, reflect.TypeFor[manifestHead](), ""); err != nil {
		return nil, err
	}
	if err := yaml.NodeToValue(node, &head, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("%w%s", err, nearestPath(err.Error(), reflect.TypeFor[queueManifest]()))
	}
	var whole any
	var meta *control.Metadata
	switch head.Kind {
	case control.KindQueue:
		q := &queueManifest{}
		whole, meta = q, &q.Metadata
	case control.KindConnector:
		c := &connectorManifest{}
		whole, meta = c, &c.Metadata
	default:
		return nil, fmt.Errorf("%s kind is %q; the kinds are Queue and Connector", where, head.Kind)
	}
	if err := manifestValues.check(node, reflect.TypeOf(whole), ""); err != nil {
		return nil, err
	}
	if err := yaml.NodeToValue(node, whole, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("%w%s", err, nearestPath(err.Error(), reflect.TypeOf(whole)))
	}
	if meta.Name == "" {
		return nil, fmt.Errorf("%s metadata.name is missing", where)
	}
	m := &manifest{kind: kindOf(head.Kind), name: meta.Name, version: meta.ResourceVersion}
	return m, m.takeSpec(node, where, whole)
}

// takeSpec keeps the spec as it was written. The types are checked a second time: to YAML 1.5 may be an
// integer, to a node it is none.
func (m *manifest) takeSpec(node ast.Node, where string, whole any) error {
	var written struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.NodeToValue(node, &written); err != nil {
		return err
	}
	if written.Spec == nil {
		return fmt.Errorf("%s spec is missing; `spec: {}` takes every default", where)
	}
	b, err := json.Marshal(written.Spec)
	if err != nil {
		return fmt.Errorf("%s spec: %w", where, err)
	}
	m.spec = b
	full, err := json.Marshal(map[string]any{"spec": written.Spec})
	if err != nil {
		return fmt.Errorf("%s spec: %w", where, err)
	}
	if err := json.Unmarshal(full, whole); err != nil {
		return fmt.Errorf("%s %w", where, err)
	}
	return nil
}

// nearestPath names the known key, with its path, that an unknown one is most like.
func nearestPath(message string, t reflect.Type) string {
	m := unknownField.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	best, distance := "", 4
	for _, path := range keyPaths(t, "") {
		key := path[strings.LastIndexByte(path, '.')+1:]
		if d := editDistance(strings.ToLower(m[1]), strings.ToLower(key)); d < distance && d < len(key) {
			best, distance = path, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("\ndid you mean %q?", best)
}

// keyPaths are the paths of all keys of a struct, by their JSON names.
func keyPaths(t reflect.Type, prefix string) (paths []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		paths = append(append(paths, prefix+name), keyPaths(t.Field(i).Type, prefix+name+".")...)
	}
	return paths
}
