// Package raftstore says who has a message: it turns the ordered, durable logs of package wal into
// groups that take proposals, give evidence and drive state machines.
//
// # What it is for
//
// A Group is one log of commands with bodies. Everything above (queues, the control plane) sees
// only this seam: propose a batch, watch the watermarks, receive what is applied. Its first implementation is
// the group with one owner: no term but an epoch, no vote, no peer; what is written is committed, and
// what is flushed follows. A Host runs the groups of a node on a few shards.
//
// # What it promises
//
//   - A batch that Propose took is answered exactly once: Appended, or Dropped with Refused
//     (definitely not stored) or Indeterminate (nobody knows before the log is read again).
//   - Appended means written: the entry and its bodies survive the death of the process. An entry at
//     or below Marks.Flushed survives a power cut. Neither is ever taken back, and no mark falls.
//   - Items are applied in the order of their entries, each once per life; a body is never applied
//     before it is written.
//   - Refs and (term, index) pairs are never given out twice: every open raises and flushes the epoch.
//   - A group that is slow, full, stalled or poisoned delays no other group: a round waits for no
//     flush and no job, and one group's inbox, round and job are bounded.
//   - A body is forgotten on disk only once a flushed snapshot covers the entry that settled it.
//
// # A round
//
// A shard is one goroutine that does rounds while there is work. A group with work is in its list
// once, however often it was woken.
//
//	Propose ─▶ inbox of the group (bounded; digests are computed here, by the caller)
//	               │
//	1. drain       ▼      groups with work, flush wake, ticks, finished jobs, messages of peers
//	2. take up            flush marks, finished jobs  ◀── one coalesced wake ──┐   poison ▸ read-only
//	3. append             one entry per group, more where 256 KiB or the round's budget split it; bodies and
//	                      entry, one write each     disk full ▸ Refused, the next is tried again
//	4. answer             Appended(tag, term, index)  not ready ▸ they wait for the log's job
//	5. flush              requested, never waited for  ─────▶  fsync.Flusher ──┘
//	6. apply              Apply(term, index, items)
//	7. tell               Moved(marks) once; buffers go back to the proposers
//	8. begin              next job, snapshot or close  ─────▶  workers ──▶ 2. of a later round
//
// # Who may call what
//
// Host and Group: any goroutine. A Machine is called by its shard, one call at a time; it may call
// Propose, Release, NewBody, OpenBody and Status of its group, and must not call Stop. Readers and writers of
// bodies belong to one goroutine at a time.
//
// # Lifecycle
//
// NewHost, OpenOwner (many at a time) and Start in any order, or Step instead of Start: then there are
// no goroutines, and jobs run inline. Group.Stop flushes and closes one log, Host.Stop all of them; the
// store is closed afterwards by who opened it. A group that did nothing for a second gives its
// descriptors back and is in no list until it is called again.
//
// # On failure
//
// A full disk refuses the proposals it concerns; admission resumes by itself. A failed flush or write
// makes its group read-only until it is opened anew (Status, Halter, EventKind GroupReadOnly): evidence given
// before stands, a body can still be read. Failed reports that the node's storage as a whole is not
// to be trusted: the process has to end. Nothing is retried that a kernel may have lost.
//
// The reasons are in docs/explanation; the bytes on disk are in STORE.md.
package raftstore
