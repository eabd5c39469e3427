// Package raftstore says who has a message: it turns the ordered, durable logs of package wal into
// groups that take proposals, give evidence and drive state machines.
//
// # What it is for
//
// A Group is one log of commands with bodies. Everything above (queues, the control plane) sees
// only this seam: propose a batch, watch the watermarks, receive what is applied. It has two implementations. The
// group with one owner has no term but an epoch, no vote and no peer; what is written is committed, and
// what is flushed follows. The replicated group is decided by a majority of its voters, with raft; its leader knows
// on how many of them an entry is flushed. A Host runs the groups of a node on a few shards.
//
// # What it promises
//
//   - A batch that Propose took is answered exactly once: Appended, or Dropped with Refused
//     (definitely not stored) or Indeterminate (nobody knows before the log is read again).
//   - Appended means written: the entry and its bodies survive the death of the process. An entry at
//     or below Marks.Flushed survives a power cut. With one owner neither is ever taken back, and no mark falls.
//   - With replicas, an entry at or below Marks.Committed is never taken back while a majority of the disks survives;
//     one above may be replaced by another leader's, and then Written and Flushed fall. Marks.Held[n-1] never
//     says more than what is flushed, bodies included, on n disks. Terms, votes and acknowledgements leave a
//     node only when what they say is durable.
//   - Items are applied in the order of their entries, each once per life; a body is never applied
//     before it is written.
//   - Refs and (term, index) pairs are never given out twice: every open of an owner raises and flushes the epoch,
//     and a term has one leader.
//   - A group that is slow, full, stalled or poisoned delays no other group: a round waits for no
//     flush, no job and no peer, and one group's inbox, mailbox, round and job are bounded.
//   - A body is forgotten on disk only once a flushed snapshot covers the entry that settled it.
//   - An idle group costs nothing: it is in no list, and its replicas are not ticked.
//
// # A round
//
// A shard is one goroutine that does rounds while there is work. A group with work is in its list
// once, however often it was woken.
//
//	Propose ─▶ inbox of the group (bounded; digests are computed here, by the caller)
//	Receiver ─▶ mailbox   │   (bounded; decoded and checked here, by the caller)
//	1. drain       ▼      groups with work, flush wake, ticks, finished jobs, messages of peers, nodes that came or went
//	2. take up            flush marks, finished jobs  ◀── one coalesced wake ──┐   poison ▸ read-only
//	                      what waited for them is said: to raft, to peers      │
//	3. append             one entry per group, more where 256 KiB or the round's budget split it; bodies and
//	                      entry, one write each     disk full ▸ Refused, the next is tried again
//	                      of messages only what this replica can keep (the input gate): bodies here, room on the disk
//	4. answer             Appended(tag, term, index)  not ready ▸ they wait for the log's job
//	5. send and flush     one exchange per peer, bodies before entries; flushes are requested, never waited for ──┐
//	6. apply              Apply(term, index, items)                                         fsync.Flusher ◀───────┘
//	7. tell               Moved(marks) once; buffers go back to the proposers
//	8. begin              hard state, next job, snapshot or close  ─────▶  workers ──▶ 2. of a later round
//
// # Bodies and snapshots
//
// A replicated group's bodies travel beside raft's messages, never in them. An inline body is
// pushed to the other members with the batch that holds it; a large one while it comes in, as fast
// as a majority takes it. What is missing when its entry comes is asked for by ref, of the leader
// and then of the others, and counts only with the length and digest of its commit record. A leader
// answers for a body that is settled and gone with the index as of which it is: a tombstone then
// stands for it. Before it is in a batch all of it waits in the replica's room, which is bounded,
// and so is what the rooms of a node hold together.
//
// A member that the log does not reach any more gets the newest snapshot by a stream, then every
// live body that it names and that is not there. Raft hears of the snapshot only when all of that
// is flushed: until then, whatever breaks, the replica is what it was. A node sends few snapshots
// at a time, and so many bytes a second.
//
// # Damage
//
// What the logs of a node hold on its disk is read again all the time, slowly, and what is damaged is mended: a body
// comes again from another replica, an entry makes way for a snapshot, a file is written anew (mend.go, mendbody.go,
// scrubber.go). Until then it is not served, and a leader that takes long hands over.
//
// # Who may call what
//
// Host, its Receiver and Group: any goroutine. A Machine is called by its shard, one call at a time; it may call
// Propose, Release, NewBody, OpenBody and Status of its group, and must not call Stop. Readers and writers of
// bodies belong to one goroutine at a time.
//
// # Lifecycle
//
// NewHost, OpenOwner and OpenReplica (many at a time) and Start in any order, or Step instead of Start: then there are
// no goroutines, and jobs run inline. Group.Stop flushes and closes one log, Host.Stop all of them; the
// store is closed afterwards by who opened it. A group that did nothing for a second gives its
// descriptors back. A log goes from an owner to replicas and back (convert.go).
//
// # On failure
//
// A full disk refuses the proposals it concerns, and what peers send is dropped as if the network had lost
// it; admission resumes by itself. A failed flush or write makes a group read-only on this node until it is
// opened anew (Status, Halter, EventKind GroupReadOnly): evidence given before stands, a body can still be
// read, and a leader tells the others to elect another. A leader whose disk stalls hands over. Failed reports
// that the node's storage as a whole is not to be trusted: the process has to end. Nothing is retried that a
// kernel may have lost.
//
// # The files
//
//	group.go, machine.go, transport.go, options.go, events.go, errors.go      what others see
//	host.go, shard.go, seat.go, run.go, task.go, inbox.go, plan.go, codec.go  hosting, for both kinds
//	snapshot.go, release.go, body.go, convert.go                              what both kinds keep
//	owner.go, open.go, round.go                                               the group with one owner
//	replica.go, replicaopen.go, replicaround.go, replicaapply.go, store.go    a replica and its rounds
//	gate.go, answers.go, raftlog.go, conf.go, reconfigure.go, peers.go        what raft is told, and when it is heard
//	quiet.go, tickalone.go                                                    idle groups, and time without a round
//	disk.go, diskyield.go                                                     disks without room, and slow ones
//	scrubber.go, mend.go, mendbody.go                                         damage is looked for and mended
//	frame.go, mail.go, outbox.go, receive.go                                  what goes over the raft connection
//	supply.go and the files that it names                                     bodies and snapshots between nodes
//	off.go                                                                    rules that tests switch off
//
// The reasons are in docs/explanation; the bytes on disk are in STORE.md.
package raftstore
