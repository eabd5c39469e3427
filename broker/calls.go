package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"weida/broker/control"
	"weida/broker/peer"
	"weida/broker/wire"
	"weida/raftstore"
)

// This file is what nodes ask each other. A call is one byte that says what, and its content.
const (
	// callCommand is a command for the control log; the answer is a callAnswer as JSON.
	callCommand = 1
	// callAsk is what one node's HTTP side asks another's; answerNode has the content.
	callAsk = 2
	// callJoin asks as which replica the caller learns the control log; the answer is 8 bytes.
	callJoin = 3
	// callVersion asks the node that leads the control group for its version of the registry; the answer is 8 bytes, or
	// none if it does not lead.
	callVersion = 4
)

// callAnswer is how a command ended.
type callAnswer struct {
	NotLeading bool            `json:"notLeading,omitempty"`
	Code       wire.Code       `json:"code,omitempty"` // of the error, if there is one
	Detail     string          `json:"detail,omitempty"`
	Result     *control.Result `json:"result,omitempty"`
}

// serve answers another node.
func (c *cluster) serve(ctx context.Context, from raftstore.NodeID, request []byte) ([]byte, error) {
	if len(request) == 0 {
		return nil, errors.New("an empty call")
	}
	if !c.opened.Load() {
		return nil, errors.New("this node is being opened, or waits to be let into the cluster")
	}
	switch kind, content := request[0], request[1:]; kind {
	case callCommand:
		if _, err := control.Decode(content); err != nil {
			return nil, err
		}
		return json.Marshal(c.command(ctx, content))
	case callJoin:
		return c.replicaFor(from), nil
	case callVersion:
		return c.node.registry.led(), nil
	case callAsk:
		return c.node.answerNode(ctx, content)
	default:
		return nil, fmt.Errorf("a call of unknown kind %d from node %d; the nodes are of different versions", kind,
			uint64(from))
	}
}

// command puts another node's command into the log, if this one leads.
func (c *cluster) command(ctx context.Context, content []byte) callAnswer {
	r := c.node.registry
	r.mu.Lock()
	leads := r.leads
	r.mu.Unlock()
	if !leads {
		return callAnswer{NotLeading: true}
	}
	result, err := r.putHere(ctx, content)
	var why *wire.Error
	switch {
	case err == nil:
		return callAnswer{Result: &result}
	case errors.Is(err, errNotLeading):
		return callAnswer{NotLeading: true}
	case errors.As(err, &why):
		return callAnswer{Code: why.Code, Detail: why.Detail}
	}
	return callAnswer{Code: wire.MutationIndeterminate, Detail: err.Error()}
}

// away implements registry.away over the links.
func (c *cluster) away(ctx context.Context, leader raftstore.NodeID, command []byte) (control.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, commitPatience)
	defer cancel()
	b, err := c.links.Call(ctx, leader, append([]byte{callCommand}, command...))
	var down *peer.DownError
	var refused *peer.StreamRefusedError
	switch {
	case errors.As(err, &down):
		return control.Result{}, errNotLeading // as far as this node can tell
	case errors.As(err, &refused):
		return control.Result{}, notCommitted(err)
	case err != nil:
		return control.Result{}, &wire.Error{Code: wire.MutationIndeterminate, Detail: err.Error()}
	}
	var a callAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return control.Result{}, &wire.Error{Code: wire.MutationIndeterminate, Detail: err.Error()}
	}
	switch {
	case a.NotLeading:
		return control.Result{}, errNotLeading
	case a.Code != 0:
		return control.Result{}, &wire.Error{Code: a.Code, Detail: a.Detail}
	case a.Result == nil:
		return control.Result{}, &wire.Error{Code: wire.MutationIndeterminate, Detail: "the leader's answer says nothing"}
	}
	return *a.Result, nil
}

// askNode asks another node's HTTP side.
func (c *cluster) askNode(ctx context.Context, to raftstore.NodeID, request []byte) ([]byte, error) {
	return c.links.Call(ctx, to, append([]byte{callAsk}, request...))
}
