package broker

import (
	"cmp"
	"slices"

	"weida/broker/admin"
	"weida/broker/control"
)

// historyMax bounds the changes that watches may go back to.
const historyMax = 8192

// history is the last changes of the registry, for watches: as many as there were since the node started, at most
// historyMax. It is guarded by the registry's lock.
type history struct {
	list []admin.Change
	from uint64 // the version behind which all are held
}

// note takes what an entry did.
func (h *history) note(version uint64, c control.Command, made bool, r control.Result) {
	if r.Err != nil || !r.Changed {
		return
	}
	change := admin.Change{Version: version, Type: admin.Modified}
	switch {
	case c.Remove != nil:
		change.Type = admin.Deleted
	case made:
		change.Type = admin.Added
	}
	switch {
	case r.Queue != nil:
		change.Kind, change.Object = control.KindQueue, r.Queue
	case r.Connector != nil:
		change.Kind, change.Object = control.KindConnector, r.Connector
	default:
		return
	}
	if len(h.list) == historyMax {
		h.from = h.list[historyMax/4-1].Version
		h.list = append([]admin.Change(nil), h.list[historyMax/4:]...)
	}
	h.list = append(h.list, change)
}

// behind is the changes after a version, of which upTo is the last.
func (h *history) behind(after uint64, most int, upTo uint64) admin.Changes {
	p := admin.Changes{UpTo: upTo, Gone: after < h.from}
	if p.Gone {
		return p
	}
	i, _ := slices.BinarySearchFunc(h.list, after+1, func(c admin.Change, v uint64) int {
		return cmp.Compare(c.Version, v)
	})
	for _, c := range h.list[i:] {
		if n := len(p.List); n >= most && p.List[n-1].Version != c.Version {
			p.UpTo = p.List[n-1].Version
			break
		}
		p.List = append(p.List, c)
	}
	return p
}

// madeBy says whether a result is of a resource that the entry made.
func madeBy(r control.Result, version uint64) bool {
	return r.Queue != nil && r.Queue.Metadata.UID == version ||
		r.Connector != nil && r.Connector.Metadata.UID == version
}
