package doctor

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"path/filepath"
	"regexp"

	"weida/broker/endpoint"
	"weida/fsync"
)

// gone stands where something was taken out.
const gone = "(left out)"

// What looks like a secret in a text, and what is left of it.
var secretLooks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\z)`), gone},
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/@\s]*@`), "${1}" + gone + "@"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+`), "${1} " + gone},
	{
		regexp.MustCompile(`(?i)\b([a-z_-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credentials?|` +
			`authorization))(["']?\s*[:=]\s*)("[^"]*"|'[^']*'|\S+(?: ` + regexp.QuoteMeta(gone) + `)?)`),
		"${1}${2}" + gone,
	},
	// What an error quotes came from outside.
	{regexp.MustCompile(`"[^"\n]*"`), `"…"`},
	{regexp.MustCompile(`'[^'\s]*'`), `'…'`},
}

// scrub takes out of a text what looks like a secret, and what is quoted in it.
func scrub(text string) string {
	for _, l := range secretLooks {
		text = l.re.ReplaceAllString(text, l.with)
	}
	return text
}

// tidyJSON writes a document of a known type with every text in it scrubbed. What the type does not know is not in it.
func tidyJSON(doc any) ([]byte, error) {
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var plain any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // an index does not fit into a float
	if err := dec.Decode(&plain); err != nil {
		return nil, err
	}
	b, err = json.MarshalIndent(scrubAll(plain), "", "  ")
	return append(b, '\n'), err
}

func scrubAll(v any) any {
	switch v := v.(type) {
	case string:
		return scrub(v)
	case []any:
		for i := range v {
			v[i] = scrubAll(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = scrubAll(v[k])
		}
	}
	return v
}

// secrets are the ways in which the node's private key could stand in a file. They are looked for in everything before
// it is let out, as the last of several doors.
type secrets [][]byte

func secretsOf(data string) (s secrets) {
	b, err := fsync.ReadFile(fsync.OS(), filepath.Join(data, "node.key"), keyFileMax)
	if err != nil {
		return nil // what cannot be read cannot get out
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return secrets{bytes.TrimSpace(b)}
	}
	text := base64.StdEncoding.EncodeToString(block.Bytes)
	s = append(s, block.Bytes, []byte(text), []byte(hex.EncodeToString(block.Bytes)))
	if key, err := endpoint.ParseKey(b); err == nil {
		seed := key.Seed()
		s = append(s, seed, []byte(hex.EncodeToString(seed)), []byte(base64.StdEncoding.EncodeToString(seed)),
			[]byte(base64.RawURLEncoding.EncodeToString(seed)))
	}
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 20 && !bytes.HasPrefix(line, []byte("-----")) {
			s = append(s, line)
		}
	}
	return s
}

func (s secrets) in(data []byte) bool {
	for _, one := range s {
		if len(one) > 0 && bytes.Contains(data, one) {
			return true
		}
	}
	return false
}
