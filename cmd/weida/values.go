package main

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"weida/broker/control"
)

// valueCheck compares the values of a document with the types that they are for, so that a slip is shown
// in words, with its field and its place. What is no slip, or one of another kind, is left to the decoder.
type valueCheck struct {
	tag   string // of the structs: json or yaml
	units bool   // numbers of bytes may have a unit, as those of flags; they are made plain in the document
}

// byteFields are the keys whose values are numbers of bytes.
var byteFields = []string{"bytes", "messageBytes", "messageMax", "bytesPerSecond"}

var durationType = reflect.TypeFor[control.Duration]()

// check walks a node; path is what people call it, "" at the top.
func (c valueCheck) check(n ast.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n.(type) {
	case *ast.NullNode, *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return nil
	}
	if t == durationType {
		if s, ok := n.(*ast.StringNode); ok {
			if _, err := time.ParseDuration(s.Value); err == nil {
				return nil
			}
		}
		return wrong(n, path, "a time: a number with a unit, as 30s, 5m or 1h")
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.fields(n, t, path)
	case reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return wrong(n, path, "a list")
		}
		for i, v := range list.Values {
			if err := c.check(v, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return c.integer(n, path)
	case reflect.String:
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
			return wrong(n, path, "one text")
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			if strings.HasPrefix(path, "spec.") {
				return wrong(n, path, "text; a number or a yes or no stands in quotes")
			}
		}
	default: // no field of a manifest is of another kind
	}
	return nil
}

func (c valueCheck) integer(n ast.Node, path string) error {
	i, ok := n.(*ast.IntegerNode)
	if v, isSigned := valueOf(i).(int64); ok && (!isSigned || v >= 0) {
		return nil
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	if slices.Contains(byteFields, key) && c.units {
		return wrong(n, path, "a number of bytes, as 65536, 64KiB or 2GiB")
	}
	if slices.Contains(byteFields, key) {
		return wrong(n, path, "a number of bytes without a unit, as 65536")
	}
	return wrong(n, path, "a whole number, 0 or more")
}

func valueOf(n *ast.IntegerNode) any {
	if n == nil {
		return nil
	}
	return n.Value
}

func (c valueCheck) fields(n ast.Node, t reflect.Type, path string) error {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		if _, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler); ok {
			return nil
		}
		return wrong(n, path, "fields with values")
	}
	for _, v := range values {
		if v.Key.GetToken() == nil {
			continue
		}
		key := v.Key.GetToken().Value
		f, ok := c.field(t, key)
		if !ok {
			continue // the decoder has the words for it
		}
		if c.units && slices.Contains(byteFields, key) {
			v.Value = plainBytes(v.Value)
		}
		at := key
		if path != "" {
			at = path + "." + key
		}
		if err := c.check(v.Value, f, at); err != nil {
			return err
		}
	}
	return nil
}

func (c valueCheck) field(t reflect.Type, key string) (reflect.Type, bool) {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get(c.tag), ","); name == key {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

// plainBytes is a number of bytes without its unit, or the node as it is.
func plainBytes(n ast.Node) ast.Node {
	s, ok := n.(*ast.StringNode)
	if !ok || s.Token == nil || !strings.HasSuffix(s.Value, "iB") {
		return n
	}
	v, err := parseSize(s.Value)
	if err != nil {
		return n
	}
	text := strconv.FormatUint(v, 10)
	return ast.Integer(token.New(text, text, s.Token.Position))
}

// wrong says what a value is not, and shows it in its place.
func wrong(n ast.Node, path, allowed string) error {
	if path == "" {
		path = "the document"
	}
	at := n.GetToken()
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		return &yaml.SyntaxError{Message: fmt.Sprintf("%s has to be %s", path, allowed), Token: at}
	}
	return &yaml.SyntaxError{Message: fmt.Sprintf("%s is %s; it has to be %s", path, at.Value, allowed), Token: at}
}
