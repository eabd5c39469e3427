package admin

import (
	"encoding"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"weida/broker/control"
)

// The OpenAPI description is made of the table of routes and of the types that are read and written, so it cannot
// say anything else than the handler does. docs/reference/openapi.yaml is the same text; a test compares.

// openAPI serves the description.
func (h *handler) openAPI(w http.ResponseWriter, _ *call) error {
	h.api.once.Do(func() { h.api.text = describeAPI(h.routes) })
	write(w, http.StatusOK, yamlKind, h.api.text)
	return nil
}

// described holds the description once it was asked for.
type described struct {
	once sync.Once
	text []byte
}

type fields = yaml.MapSlice

func field(name string, value any) yaml.MapItem { return yaml.MapItem{Key: name, Value: value} }

// describeAPI is the description of a table of routes.
func describeAPI(routes []route) []byte {
	s := schemas{named: make(map[string]fields)}
	refused := s.of(reflect.TypeFor[ErrorBody]())
	var paths fields
	for _, rt := range routes {
		i := slices.IndexFunc(paths, func(p yaml.MapItem) bool { return p.Key == rt.path })
		if i < 0 {
			i = len(paths)
			paths = append(paths, field(rt.path, fields{}))
		}
		paths[i].Value = append(paths[i].Value.(fields), field(strings.ToLower(rt.method), s.operation(rt, refused)))
	}
	names := make([]string, 0, len(s.named))
	for name := range s.named {
		names = append(names, name)
	}
	slices.Sort(names)
	var all fields
	for _, name := range names {
		all = append(all, field(name, s.named[name]))
	}
	b, err := yaml.Marshal(fields{
		field("openapi", "3.1.0"),
		field("info", fields{
			field("title", "weida admin API"),
			field("description", "Resources, health and metrics of a node. docs/reference/admin.md explains it."),
			field("version", "v1"),
		}),
		field("servers", []fields{{field("url", "http://localhost:7444")}}),
		field("paths", paths),
		field("components", fields{field("schemas", all)}),
	})
	if err != nil {
		panic("bug: admin: the description has no YAML: " + err.Error())
	}
	return b
}

// schemas collects the types that are named.
type schemas struct{ named map[string]fields }

func (s *schemas) operation(rt route, refused fields) fields {
	var params []fields
	if strings.Contains(rt.path, "{name}") {
		params = append(params, fields{
			field("name", "name"), field("in", "path"), field("required", true),
			field("schema", fields{field("type", "string")}),
		})
	}
	for _, p := range rt.params {
		params = append(params, fields{
			field("name", p.name), field("in", "query"), field("description", p.does),
			field("schema", fields{field("type", "string")}),
		})
	}
	op := fields{field("summary", rt.does)}
	if rt.method != http.MethodGet {
		params = append(params, fields{
			field("name", Header), field("in", "header"), field("required", true),
			field("schema", fields{field("const", "1")}),
		})
	}
	if len(params) > 0 {
		op = append(op, field("parameters", params))
	}
	if rt.body != nil {
		op = append(op, field("requestBody", fields{
			field("required", true), field("content", s.content("application/json", rt.body)),
		}))
	}
	responses := fields{}
	for _, a := range rt.answers {
		status := fmt.Sprint(a.status)
		i := slices.IndexFunc(responses, func(r yaml.MapItem) bool { return r.Key == status })
		if i < 0 {
			i = len(responses)
			responses = append(responses, field(status, fields{
				field("description", http.StatusText(a.status)), field("content", fields{}),
			}))
		}
		r := responses[i].Value.(fields)
		r[1].Value = append(r[1].Value.(fields), s.contents(a)...)
	}
	return append(op, field("responses", append(responses, field("default", fields{
		field("description", "refused"),
		field("content", fields{field("application/json", fields{field("schema", refused)})}),
	}))))
}

// contents are the media types of an answer: JSON, another, or one of both by what was asked for.
func (s *schemas) contents(a answered) (c fields) {
	if a.kind != "" {
		schema := fields{field("type", "string")}
		if a.kind == eventKind {
			schema = s.of(reflect.TypeOf(a.body))
		}
		c = append(c, field(a.kind, fields{field("schema", schema)}))
	}
	if a.body != nil && a.kind != eventKind {
		c = append(c, s.content("application/json", a.body)...)
	}
	return c
}

func (s *schemas) content(kind string, v any) fields {
	return fields{field(kind, fields{field("schema", s.of(reflect.TypeOf(v)))})}
}

// enums are the types whose values are words.
var enums = map[reflect.Type][]any{
	reflect.TypeFor[control.Kind]():       {control.KindQueue, control.KindConnector, control.KindNode},
	reflect.TypeFor[control.Phase]():      {control.Pending, control.Ready, control.Degraded, control.Deleting},
	reflect.TypeFor[control.Durability](): {control.Flushed, control.Written},
	reflect.TypeFor[GroupHealth]():        {Healthy, Changing, Degraded, Unknown, Unavailable},
	reflect.TypeFor[Role]():               {RoleFollower, RoleCandidate, RoleLeader, RoleOwner, RoleLearner},
	reflect.TypeFor[control.NodeState](): {
		control.NodeJoining, control.NodeMember, control.NodeDraining, control.NodeRemoving,
	},
	reflect.TypeFor[EventType](): {Added, Modified, Deleted, Progress, Ended},
}

var marshals = reflect.TypeFor[encoding.TextMarshaler]()

// of is the schema of a type; structs are named and referred to.
func (s *schemas) of(t reflect.Type) fields {
	if words, ok := enums[t]; ok {
		texts := make([]string, len(words))
		for i, w := range words {
			texts[i] = fmt.Sprint(w)
		}
		return fields{field("type", "string"), field("enum", texts)}
	}
	if t == ignoredType {
		return fields{field("description", "only the node sets it; what stands here is not looked at")}
	}
	if t.Implements(marshals) {
		return fields{field("type", "string")}
	}
	switch k := t.Kind(); k {
	case reflect.Bool:
		return fields{field("type", "boolean")}
	case reflect.String:
		return fields{field("type", "string")}
	case reflect.Float64:
		return fields{field("type", "number")}
	case reflect.Slice:
		return fields{field("type", "array"), field("items", s.of(t.Elem()))}
	case reflect.Map:
		return fields{field("type", "object"), field("additionalProperties", s.of(t.Elem()))}
	case reflect.Interface:
		return fields{}
	case reflect.Pointer:
		return fields{field("anyOf", []fields{s.of(t.Elem()), {field("type", "null")}})}
	case reflect.Struct:
		return s.object(t)
	default:
		if k >= reflect.Int && k <= reflect.Uint64 {
			return fields{field("type", "integer"), field("format", k.String())}
		}
	}
	panic("bug: admin: no schema for a " + t.String())
}

func (s *schemas) object(t reflect.Type) fields {
	name := schemaName(t)
	ref := fields{field("$ref", "#/components/schemas/"+name)}
	if _, known := s.named[name]; known {
		return ref
	}
	s.named[name] = nil // it is on its way
	var properties fields
	var required []string
	s.properties(t, nil, &properties, &required)
	o := fields{field("type", "object"), field("properties", properties)}
	if len(required) > 0 {
		o = append(o, field("required", required))
	}
	s.named[name] = o
	return ref
}

// properties adds the fields of a struct as encoding/json does: those of one that is embedded stand beside the others,
// but for those that are hidden by one of the same name.
func (s *schemas) properties(t reflect.Type, hidden []string, properties *fields, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			s.properties(f.Type, append(jsonFields(t), hidden...), properties, required)
			continue
		}
		name, how, _ := strings.Cut(tag, ",")
		if name == "" {
			panic("bug: admin: the field " + f.Name + " of " + t.String() + " has no JSON name")
		}
		if slices.Contains(hidden, name) {
			continue
		}
		*properties = append(*properties, field(name, s.of(f.Type)))
		if how == "" {
			*required = append(*required, name)
		}
	}
}

// jsonFields are the names of a struct's own fields.
func jsonFields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// schemaName is what a type is called in the description.
func schemaName(t reflect.Type) string {
	name := t.Name()
	for _, generic := range []string{"request", "List"} {
		if of, ok := strings.CutPrefix(name, generic+"["); ok {
			of = strings.TrimSuffix(of[strings.LastIndexByte(of, '.')+1:], "]")
			if of == "Member" {
				of = "Node"
			}
			if generic == "List" {
				return of + "List"
			}
			return strings.TrimSuffix(of, "Spec") + "Request"
		}
	}
	switch {
	case t == reflect.TypeFor[control.Replica]():
		return "Placement"
	case t == reflect.TypeFor[Member]():
		return "Node"
	case t == reflect.TypeFor[requestMeta]():
		return "RequestMetadata"
	case t == reflect.TypeFor[control.Queue](), t == reflect.TypeFor[control.Connector](),
		t == reflect.TypeFor[control.Node]():
		panic("bug: admin: " + name + " is answered bare")
	case t.PkgPath() == reflect.TypeFor[control.Status]().PkgPath() && name == "Status":
		return "ResourceStatus"
	}
	return name
}
