package admin

import (
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const openAPIFile = "../../docs/reference/openapi.yaml"

// The file in docs/reference is what the node serves.
func TestOpenAPIFile(t *testing.T) {
	r := newRig(t, Options{})
	got := r.want(http.StatusOK, "GET", "/v1/openapi.yaml", "").body
	if *update {
		if err := os.WriteFile(openAPIFile, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("docs/reference/openapi.yaml is not what the node serves; `go test ./broker/admin -run OpenAPIFile " +
			"-update` writes it")
	}
}

type description struct {
	Paths map[string]map[string]struct {
		Parameters []struct{ Name, In string } `yaml:"parameters"`
		Responses  map[string]struct {
			Content map[string]any `yaml:"content"`
		} `yaml:"responses"`
		RequestBody any `yaml:"requestBody"`
	} `yaml:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any `yaml:"properties"`
		} `yaml:"schemas"`
	} `yaml:"components"`
}

func descriptionOf(t *testing.T, r *rig) (d description) {
	t.Helper()
	if err := yaml.Unmarshal(r.want(http.StatusOK, "GET", "/v1/openapi.yaml", "").body, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Every path and method that is described is served, and every one that is served is described; so are the parameters.
func TestOpenAPIRoutes(t *testing.T) {
	r := newRig(t, Options{})
	d := descriptionOf(t, r)
	for path, methods := range d.Paths {
		target := strings.ReplaceAll(path, "{name}", "none")
		a := r.do("TRACE", target, "")
		var allow []string
		for method, op := range methods {
			allow = append(allow, strings.ToUpper(method))
			if method == "get" {
				allow = append(allow, "HEAD")
			}
			for _, p := range op.Parameters {
				if p.In != "query" {
					continue
				}
				b := r.do(strings.ToUpper(method), target+"?"+p.Name+"=x&"+p.Name+"=x", "")
				if !strings.Contains(string(b.body), "stands more than once") {
					t.Errorf("%s %s does not know the parameter %s: %s", method, path, p.Name, b.body)
				}
			}
			if b := r.do(strings.ToUpper(method), target+"?slip=1", ""); !strings.Contains(string(b.body), "no parameter here") {
				t.Errorf("%s %s takes a parameter that is not described: %s", method, path, b.body)
			}
		}
		got := strings.Split(a.header.Get("Allow"), ", ")
		slices.Sort(got)
		slices.Sort(allow)
		if a.status != http.StatusMethodNotAllowed || !slices.Equal(got, allow) {
			t.Errorf("%s: described are %v, served %v", path, allow, got)
		}
	}
}

// Every field of every type that is read or answered is in the description, and no other (the types are walked here
// on their own).
func TestOpenAPIFields(t *testing.T) {
	d := descriptionOf(t, newRig(t, Options{}))
	seen := make(map[string]bool)
	for _, v := range []any{
		Queue{},
		Connector{},
		Member{},
		List[Queue]{},
		QueueRequest{},
		ConnectorRequest{},
		NodeRequest{},
		NodeAnswer{},
		Status{},
		HealthBody{},
		Version{},
		ErrorBody{},
		Event{},
		ClusterStatus{},
		Facts{},
		QuorumRequest{},
		QuorumResponse{},
		TransferRequest{},
		TransferResponse{},
		Verdict{},
		Gone{},
	} {
		walkFields(t, reflect.TypeOf(v), d, seen)
	}
	for name := range d.Components.Schemas {
		if !seen[name] && name != "ConnectorList" && name != "NodeList" {
			t.Errorf("the schema %s is of no type", name)
		}
	}
}

func walkFields(t *testing.T, typ reflect.Type, d description, seen map[string]bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
		typ = typ.Elem()
	}
	name := schemaName(typ)
	if typ.Kind() != reflect.Struct || typ == ignoredType || seen[name] {
		return
	}
	seen[name] = true
	want := jsonNames(t, typ, d, seen)
	var got []string
	for p := range d.Components.Schemas[name].Properties {
		got = append(got, p)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: described are %v, there are %v", name, got, want)
	}
}

func jsonNames(t *testing.T, typ reflect.Type, d description, seen map[string]bool) (names []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			for _, n := range jsonNames(t, f.Type, d, seen) {
				if !slices.Contains(jsonFields(typ), n) { // hidden
					names = append(names, n)
				}
			}
			continue
		}
		names = append(names, tag)
		walkFields(t, f.Type, d, seen)
	}
	return names
}
