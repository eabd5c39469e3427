package admin

import (
	"reflect"
	"strings"
)

// fieldsOf maps the JSON names of a struct's fields to their places.
func fieldsOf(t reflect.Type) map[string]int {
	m := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		m[name] = i
	}
	return m
}

// pathsOf lists the paths of all fields that a client may set.
func pathsOf(t reflect.Type, under string) (paths []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type == ignoredType {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := join(under, name)
		paths = append(append(paths, at), pathsOf(f.Type, at)...)
	}
	return paths
}

// suggest names what an unknown field was perhaps meant to be: the field of that name in another place, else the
// nearest one in this place, else all that may stand here.
func (d *decoder) suggest(path, name string, t reflect.Type) string {
	all := pathsOf(d.root, "")
	for _, p := range all {
		if last := p[strings.LastIndexByte(p, '.')+1:]; strings.EqualFold(last, name) {
			return "; did you mean " + p + "?"
		}
	}
	here := pathsOf(t, path)
	direct := here[:0]
	for _, p := range here {
		if rest := strings.TrimPrefix(strings.TrimPrefix(p, path), "."); !strings.Contains(rest, ".") {
			direct = append(direct, rest)
		}
	}
	if best := nearest(name, direct); best != "" {
		return "; did you mean " + join(path, best) + "?"
	}
	return "; known here: " + strings.Join(direct, ", ")
}

// nearest is the known word that is most like one, empty if none is like it.
func nearest(word string, known []string) string {
	best, least := "", 4
	for _, k := range known {
		if len(word)-len(k) >= least {
			continue // so many letters are too many; the word may be as long as a body
		}
		if n := distance(strings.ToLower(word), strings.ToLower(k)); n < least && n < len(k) {
			best, least = k, n
		}
	}
	return best
}

// distance counts the bytes to change, add or leave out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
