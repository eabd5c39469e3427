package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"weida/broker/control"
	"weida/broker/wire"
	"weida/raftstore"
)

// ErrorBody is the body of every refusal.
type ErrorBody struct {
	Code    string `json:"code"`    // as E5001
	Name    string `json:"name"`    // of the code
	Message string `json:"message"` // for people: what happened, what it means, what to do
	Detail  string `json:"detail"`  // what is particular to the case
	Retry   string `json:"retry"`   // a wire.Retry
	Field   string `json:"field"`   // path of the first wrong field, as spec.replicas
	Now     any    `json:"now"`     // the resource as it stands: a Queue, a Connector or nil
}

// refusal is a request that is not done, on its way to the client.
type refusal struct {
	status int
	code   wire.Code
	detail string
	field  string
	allow  string // of 405
	now    any
}

func (r *refusal) Error() string { return r.detail }

func refuse(status int, code wire.Code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, detail: fmt.Sprintf(format, args...)}
}

// bad refuses a request whose path, query or headers are wrong.
func bad(format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, wire.BadRequest, format, args...)
}

// wrongField refuses a body for one field of it; the path is empty where the whole is wrong.
func wrongField(path, format string, args ...any) *refusal {
	r := refuse(http.StatusBadRequest, wire.InvalidResource, format, args...)
	path = clip(path)
	r.field = path
	if path != "" {
		r.detail = path + ": " + r.detail
	}
	return r
}

// body is what the client reads. The detail ends without a full stop: the message adds it.
func (r *refusal) body() ErrorBody {
	info, ok := wire.Lookup(r.code)
	if !ok {
		panic(fmt.Sprintf("bug: admin: code %d is not in the table", uint64(r.code)))
	}
	detail := strings.TrimSuffix(r.detail, ".")
	return ErrorBody{
		Code: fmt.Sprintf("E%d", uint64(r.code)), Name: info.Name,
		Message: (&wire.Error{Code: r.code, Detail: upper(detail)}).Error(),
		Detail:  detail, Retry: string(info.Retry), Field: r.field, Now: r.now,
	}
}

// upper makes a sentence of a detail. Details that begin with a path or a quoted word stay as they are.
func upper(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if word == "" || strings.ContainsAny(word, ".:/\"[") || word[0] < 'a' || word[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// reasons says how each reason of the control plane is answered.
var reasons = map[control.Reason]struct {
	status int
	code   wire.Code
}{
	control.Conflict: {http.StatusConflict, wire.Conflict},
	control.Exists:   {http.StatusConflict, wire.AlreadyExists},
	control.NotFound: {http.StatusNotFound, wire.NoSuchResource},
	control.Invalid:  {http.StatusBadRequest, wire.InvalidResource},
	control.Removing: {http.StatusConflict, wire.BeingDeleted},
	control.TooMany:  {http.StatusConflict, wire.RegistryFull},
	control.Unsafe:   {http.StatusConflict, wire.Unsafe},
}

// refusedBy is the refusal of a committed mutation.
func refusedBy(e *control.Error, now any) *refusal {
	how, ok := reasons[e.Reason]
	if !ok {
		panic("bug: admin: reason " + string(e.Reason) + " has no answer")
	}
	r := refuse(how.status, how.code, "%s", e.Message)
	r.field, r.now = e.Field, now
	if e.Field == "drain" {
		r.field = "drainDeadline" // as the query calls it
	}
	return r
}

// notDone are the codes with which a node says that it did not propose a mutation, or that its entry is void.
var notDone = map[wire.Code]bool{
	wire.NotCommitted: true, wire.Stopping: true, wire.ReadOnly: true, wire.DiskFull: true, wire.Overloaded: true,
	wire.StoreRefused: true, wire.NotAllowed: true,
}

// notAnswered is the refusal for a mutation that has no result. What does not say that nothing was done leaves it open.
func notAnswered(err error) *refusal {
	var e *wire.Error
	if !errors.As(err, &e) {
		return refuse(http.StatusGatewayTimeout, wire.MutationIndeterminate, "%v", err)
	}
	status, code := http.StatusGatewayTimeout, wire.MutationIndeterminate
	if notDone[e.Code] {
		status, code = http.StatusServiceUnavailable, wire.NotCommitted
	}
	if e.Code == code {
		return refuse(status, code, "%s", e.Detail)
	}
	info, ok := wire.Lookup(e.Code)
	if !ok {
		return refuse(status, code, "%v", e)
	}
	// The effect of that code is about a message; the remedy is the same.
	text := info.Meaning + " " + info.Remedy
	if e.Detail != "" {
		text = info.Meaning + " " + strings.TrimSuffix(e.Detail, ".") + ". " + info.Remedy
	}
	return refuse(status, code, "%s [E%d]", text, uint64(e.Code))
}

// groupCode is the code of a group's refusal to change.
func groupCode(err error) (wire.Code, bool) {
	var elsewhere *raftstore.NotLeaderError
	var never *raftstore.ChangeError
	switch {
	case errors.Is(err, raftstore.ErrChangePending):
		return wire.ChangePending, true
	case errors.Is(err, raftstore.ErrNoGroup):
		return wire.NoGroup, true
	case errors.As(err, &elsewhere):
		return wire.NotLeader, true
	case errors.As(err, &never):
		return wire.Unsafe, true
	}
	return 0, false
}

// CodeOf is the code of an error of Node.Transfer, so that one node can tell another.
func CodeOf(err error) wire.Code {
	var e *wire.Error
	if code, ok := groupCode(err); ok {
		return code
	}
	if errors.As(err, &e) {
		return e.Code
	}
	return wire.NotCommitted
}
