package admin

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// depthMax bounds how deeply a body nests: a resource needs 5.
const depthMax = 32

// unmarshal reads one JSON document into the struct that into points to. It is stricter than encoding/json: fields are
// known, stand once and in the known case, null is refused, and so is text that is not Unicode. The error is a
// *refusal with the path of the first wrong field. What it allocates is bounded by the length of body.
//
// Fields of type ignored are skipped, whatever they hold.
func unmarshal(body []byte, into any) error {
	if err := wellFormed(body); err != nil {
		return err
	}
	d := decoder{dec: json.NewDecoder(bytes.NewReader(body)), root: reflect.TypeOf(into).Elem()}
	d.dec.UseNumber()
	return d.value("", reflect.ValueOf(into).Elem())
}

// wellFormed checks that body is one JSON document of Unicode text, not too deep.
func wellFormed(body []byte) error {
	if !utf8.Valid(body) {
		return wrongField("", "the body is not UTF-8")
	}
	if err := depth(body); err != nil {
		return err
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return surrogates(body)
	case len(bytes.TrimSpace(body)) == 0:
		return wrongField("", "the body is empty; a resource is expected")
	case errors.As(err, &syntax) && strings.Contains(err.Error(), "after top-level value"):
		return wrongField("", "line %s: there is more after the first document; send one resource a request",
			place(body, syntax.Offset))
	case errors.As(err, &syntax) && strings.Contains(err.Error(), "unexpected end"):
		return wrongField("", "line %s: %v", place(body, int64(len(body))+1), err)
	case errors.As(err, &syntax):
		return wrongField("", "line %s: %v", place(body, syntax.Offset), err)
	}
	return wrongField("", "%v", err)
}

// place is the line and column of the byte before offset, from 1.
func place(body []byte, offset int64) string {
	before := body[:offset-1]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
	return strconv.Itoa(line) + ", column " + strconv.Itoa(column)
}

// depth refuses a body that nests too deeply before anything recursive sees it.
func depth(body []byte) error {
	level, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if level++; level > depthMax {
				return wrongField("", "line %s: the body nests more than %d deep", place(body, int64(i+1)), depthMax)
			}
		case c == '}' || c == ']':
			level--
		}
	}
	return nil
}

// surrogates refuses escapes that are half a character: encoding/json would put another character in their place, and
// a name would not be the one that was sent. The body is valid JSON, so a backslash begins an escape of a string.
func surrogates(body []byte) error {
	unit := func(i int) (uint64, bool) {
		if i+6 > len(body) || body[i] != '\\' || body[i+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(body[i+2:i+6]), 16, 16)
		return n, err == nil
	}
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		n, is := unit(i)
		switch {
		case !is:
			i++ // a short escape
		case n < 0xd800 || n > 0xdfff:
			i += 5
		default:
			low, is := unit(i + 6)
			if n > 0xdbff || !is || low < 0xdc00 || low > 0xdfff {
				return wrongField("", "line %s: the escape %s is half a character", place(body, int64(i+1)), body[i:i+6])
			}
			i += 11
		}
	}
	return nil
}

// ignored is a field that only the node sets: what a client sends there is skipped.
type ignored struct{}

var (
	ignoredType = reflect.TypeFor[ignored]()
	textType    = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decoder walks a document that is known to be well-formed, along the type it is read into.
type decoder struct {
	dec  *json.Decoder
	root reflect.Type
}

// token is the next token; the document is well-formed, so there is one.
func (d *decoder) token() json.Token {
	t, err := d.dec.Token()
	if err != nil {
		panic("bug: admin: a well-formed document ends in " + err.Error())
	}
	return t
}

func (d *decoder) value(path string, v reflect.Value) error {
	if v.Type() == ignoredType {
		return d.skip()
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(path, v.Elem())
	}
	t := d.token()
	if t == nil {
		return wrongField(path, "null is no value; leave the field out")
	}
	if v.Addr().Type().Implements(textType) {
		return d.text(path, v, t)
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.object(path, v, t)
	case reflect.Map:
		return d.texts(path, v, t)
	case reflect.Slice:
		return d.array(path, v, t)
	case reflect.String:
		s, ok := t.(string)
		if !ok {
			return wrongField(path, "a string is expected, not %s", shown(t))
		}
		v.SetString(s)
	case reflect.Int, reflect.Uint64:
		return number(path, v, t)
	case reflect.Bool:
		b, ok := t.(bool)
		if !ok {
			return wrongField(path, "true or false is expected, not %s", shown(t))
		}
		v.SetBool(b)
	default:
		panic("bug: admin: no way to read a " + v.Type().String())
	}
	return nil
}

func (d *decoder) text(path string, v reflect.Value, t json.Token) error {
	s, ok := t.(string)
	if !ok {
		return wrongField(path, "a text such as \"30s\" or \"5m\" is expected, not %s", shown(t))
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		return wrongField(path, "%v", err)
	}
	return nil
}

func number(path string, v reflect.Value, t json.Token) error {
	n, ok := t.(json.Number)
	if !ok {
		return wrongField(path, "a number is expected, not %s", shown(t))
	}
	var err error
	if v.Kind() == reflect.Int {
		var i int64
		if i, err = strconv.ParseInt(n.String(), 10, strconv.IntSize); err == nil {
			v.SetInt(i)
		}
	} else {
		var u uint64
		if u, err = strconv.ParseUint(n.String(), 10, 64); err == nil {
			v.SetUint(u)
		}
	}
	if err != nil {
		low, high := "0", strconv.FormatUint(math.MaxUint64, 10)
		if v.Kind() == reflect.Int {
			low, high = strconv.Itoa(math.MinInt), strconv.Itoa(math.MaxInt)
		}
		return wrongField(path, "a whole number from %s to %s is expected, not %s", low, high, clip(n.String()))
	}
	return nil
}

func (d *decoder) object(path string, v reflect.Value, t json.Token) error {
	if t != json.Delim('{') {
		return wrongField(path, "an object is expected, not %s", shown(t))
	}
	fields := fieldsOf(v.Type())
	seen := make(map[string]bool)
	for d.dec.More() {
		name := d.token().(string)
		at := join(path, name)
		i, ok := fields[name]
		switch {
		case !ok:
			return wrongField(at, "unknown field%s", d.suggest(path, name, v.Type()))
		case seen[name]:
			return wrongField(at, "the field stands twice")
		}
		seen[name] = true
		if err := d.value(at, v.Field(i)); err != nil {
			return err
		}
	}
	d.token()
	return nil
}

// texts reads a map of texts.
func (d *decoder) texts(path string, v reflect.Value, t json.Token) error {
	if t != json.Delim('{') {
		return wrongField(path, "an object is expected, not %s", shown(t))
	}
	m := reflect.MakeMap(v.Type())
	for d.dec.More() {
		key := reflect.ValueOf(d.token().(string))
		at := join(path, key.String())
		if m.MapIndex(key).IsValid() {
			return wrongField(at, "the field stands twice")
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(at, elem); err != nil {
			return err
		}
		m.SetMapIndex(key, elem)
	}
	if m.Len() > 0 { // an empty one is nil: one value has one form
		v.Set(m)
	}
	d.token()
	return nil
}

func (d *decoder) array(path string, v reflect.Value, t json.Token) error {
	if t != json.Delim('[') {
		return wrongField(path, "an array is expected, not %s", shown(t))
	}
	list := reflect.MakeSlice(v.Type(), 0, 0)
	for d.dec.More() {
		elem := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(path+"["+strconv.Itoa(list.Len())+"]", elem); err != nil {
			return err
		}
		list = reflect.Append(list, elem)
	}
	if list.Len() > 0 {
		v.Set(list)
	}
	d.token()
	return nil
}

// skip passes over one value.
func (d *decoder) skip() error {
	level := 0
	for {
		switch d.token() {
		case json.Delim('{'), json.Delim('['):
			level++
		case json.Delim('}'), json.Delim(']'):
			level--
		}
		if level == 0 {
			return nil
		}
	}
}

// shown is a token as people call it.
func shown(t json.Token) string {
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return "an object"
		}
		return "an array"
	case string:
		return strconv.Quote(clip(t))
	case json.Number:
		return clip(t.String())
	case bool:
		return strconv.FormatBool(t)
	}
	return "null"
}

// clip bounds what an error repeats of a request, at a whole character.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
