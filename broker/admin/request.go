package admin

import (
	"weida/broker/control"
)

// request is what a client may send to make or change a resource. Spec is a control.QueueSpec or ConnectorSpec.
type request[Spec any] struct {
	Kind     control.Kind `json:"kind,omitempty"`
	Metadata requestMeta  `json:"metadata"`
	Spec     *Spec        `json:"spec,omitempty"`
	Status   ignored      `json:"status,omitzero"`
	Live     ignored      `json:"live,omitzero"`
	Changed  ignored      `json:"changed,omitzero"`
	DryRun   ignored      `json:"dryRun,omitzero"`
}

// QueueRequest and ConnectorRequest are what a client may send to make or change one.
type (
	QueueRequest     = request[control.QueueSpec]
	ConnectorRequest = request[control.ConnectorSpec]
)

type requestMeta struct {
	Name            string `json:"name,omitempty"`
	ResourceVersion uint64 `json:"resourceVersion,omitempty"`

	// Only the node sets these.
	UID               ignored `json:"uid,omitzero"`
	Generation        ignored `json:"generation,omitzero"`
	CreationTimestamp ignored `json:"creationTimestamp,omitzero"`
	DeletionTimestamp ignored `json:"deletionTimestamp,omitzero"`
	DrainUntil        ignored `json:"drainUntil,omitzero"`
}

// decodeMutation reads the body of an apply or a create. path is the name in the request's path, nil where it has
// none; query is the expected version of the query, nil where there is none. An error is a *refusal.
func decodeMutation(verb control.Verb, kind control.Kind, path *string, query *uint64, body []byte) (
	m control.Mutation, err error,
) {
	m = control.Mutation{Verb: verb, Kind: kind}
	var meta requestMeta
	var stated control.Kind
	if kind == control.KindQueue {
		var r request[control.QueueSpec]
		err = unmarshal(body, &r)
		m.Queue, meta, stated = r.Spec, r.Metadata, r.Kind
	} else {
		var r request[control.ConnectorSpec]
		err = unmarshal(body, &r)
		m.Connector, meta, stated = r.Spec, r.Metadata, r.Kind
	}
	if err != nil {
		return m, err
	}
	switch {
	case stated != "" && stated != kind:
		return m, wrongField("kind", "%q is not what the path names: %s", clip(string(stated)), kind)
	case path != nil && meta.Name != "" && meta.Name != *path:
		return m, wrongField("metadata.name", "%q is not the name in the path, %q", clip(meta.Name), clip(*path))
	case path == nil && meta.Name == "":
		return m, wrongField("metadata.name", "a name is missing")
	case m.Queue == nil && m.Connector == nil:
		return m, wrongField("spec", "a spec is missing; {} takes every default")
	}
	if m.Name = meta.Name; path != nil {
		m.Name = *path
	}
	m.Expected = query
	if v := meta.ResourceVersion; v != 0 {
		if query != nil && *query != v {
			return m, wrongField("metadata.resourceVersion", "%d is not the expectedVersion of the query, %d", v, *query)
		}
		m.Expected = &v
	}
	return m, nil
}
