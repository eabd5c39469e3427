// Package admin is the HTTP side of a node: resources as JSON, metrics, health.
//
// # What it is for
//
// People and tools make, look at and remove resources here; nothing of message traffic passes through.
// It answers on the loopback interface only, and only to requests that name it as their host; a change
// has to carry the header X-Weida, which no page of a browser can send to it.
//
// # What it promises
//
//   - A mutation is answered when it is committed: what is wanted stands, whether or not it is done (T-23).
//   - Refusals carry a code of the one error table, what stands now, and what would be needed.
//   - Leader, term and depth are merged in when they are read and are never kept in the registry.
//   - What GET answers can be sent back: what only the node sets is passed over. Everything else that is
//     not known is refused, in bodies and in queries.
//   - A scrape of /metrics is of one size whatever the number of queues, and its counters never fall.
//
// # Who may call what
//
// Any goroutine. State is changed through Node alone.
//
// # Lifecycle
//
// NewHandler takes a Node that is open; NewServer gives its limits to a server. The caller listens,
// serves and shuts down; nothing here starts a goroutine or outlives a request.
//
// # On failure
//
// A request that cannot be read is refused before anything is done. When the answer to a mutation does
// not come in time, it is indeterminate and the answer says so. What a node says instead of a result
// counts as indeterminate too, unless it says that nothing was done.
//
// # Where it is explained
//
// docs/reference/admin.md is the API, docs/reference/metrics.md the metrics; tests hold both to the code.
package admin
