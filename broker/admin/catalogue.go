package admin

import "github.com/prometheus/client_golang/prometheus"

// metric is one family as it is scraped. docs/reference/metrics.md lists them all; a test compares.
type metric struct {
	name   string
	kind   prometheus.ValueType // UntypedValue stands for a histogram
	labels []string
	help   string
}

const (
	counter   = prometheus.CounterValue
	gauge     = prometheus.GaugeValue
	histogram = prometheus.UntypedValue
)

func labels(names ...string) []string { return names }

// sumFamilies are scraped by default. Their number of series does not depend on the number of queues.
var sumFamilies = []metric{
	{
		"weida_build_info", gauge, labels("node", "version", "commit"),
		"Always 1; the labels say which node and which build answers.",
	},
	{
		"weida_health_problems", gauge, labels("check"),
		"Problems that the node sees: alive asks for a restart, ready keeps traffic away.",
	},
	{"weida_connections_open", gauge, nil, "Messaging connections that are open."},
	{"weida_connections_total", counter, nil, "Messaging connections that were taken since the node started."},
	{
		"weida_publishes_total", counter, labels("evidence"),
		"Messages answered with evidence since the node started, by the evidence they got.",
	},
	{"weida_refusals_total", counter, labels("code"), "Requests refused since the node started, by name of the code."},
	{
		"weida_publishes_indeterminate_total", counter, nil,
		"Messages answered as indeterminate since the node started: stored or not.",
	},
	{"weida_deliveries_total", counter, nil, "Deliveries sent to consumers since the node started, repeated ones too."},
	{"weida_settles_total", counter, nil, "Settles answered since the node started."},
	{"weida_bodies_in_flight_bytes", gauge, nil, "Memory that large bodies take on their way in and out."},

	{"weida_flush_rounds_total", counter, nil, "Flush rounds since the node started."},
	{"weida_flush_files_total", counter, nil, "Files made durable in flush rounds since the node started."},
	{
		"weida_flush_errors_total", counter, nil,
		"Flushes that failed since the node started. Each makes a log read-only: of a queue with one replica until the " +
			"node is restarted, of any other until another replica has taken its place.",
	},
	{"weida_flush_duration_seconds", histogram, nil, "How long flush rounds took."},

	{"weida_disk_free_bytes", gauge, nil, "Room on the data directory's file system, as of a moment ago."},
	{"weida_disk_total_bytes", gauge, nil, "Size of the data directory's file system."},
	{
		"weida_disk_reserve_bytes", gauge, nil,
		"How much of the room is kept from messages, for settles and other commands.",
	},
	{
		"weida_disk_state", gauge, labels("state"),
		"Always 1; the label says how the disk is: ok, slow, full, or full and slow.",
	},
	{"weida_scrub_bytes_total", counter, nil, "Bytes read again from the disk to find damage, since the node started."},
	{
		"weida_consensus_election_seconds", gauge, nil,
		"Silence of a leader after which another replica calls an election, up to twice that.",
	},
	{"weida_consensus_heartbeat_seconds", gauge, nil, "Time after which a leader is heard again at the latest."},
	{"weida_consensus_streams_max", gauge, nil, "Exchanges that may be under way with another node."},
	{"weida_scrub_passes_total", counter, nil, "Times that everything was read again, since the node started."},
	{"weida_scrub_pass_age_seconds", gauge, nil, "Time since everything was read again; -1 if it was not."},
	{
		"weida_damage_found_total", counter, nil,
		"Bodies, entries and files that were not what was written, since the node started.",
	},
	{"weida_damage_mended_total", counter, nil, "Of these, those that are whole again or that nothing needs any more."},
	{"weida_damage_open", gauge, nil, "Of these, those that are not mended. Nothing of them is served."},

	{
		"weida_replicas_damaged_total", counter, labels("reason"),
		"Replicas whose files were found damaged, gone or unreadable on this node since it started, by reason.",
	},
	{
		"weida_replicas_set_aside_total", counter, nil,
		"Replicas that were given up and whose files were set aside on this node since it started.",
	},
	{"weida_replicas_lying_aside", gauge, nil, "Directories of replicas that were given up, on this node now."},
	{"weida_replicas_lost", gauge, nil, "Replicas of all queues that were given up and not replaced yet."},

	{"weida_peer_up", gauge, labels("peer"), "Whether the link with another node, by its number, stands."},
	{"weida_peer_round_trip_seconds", gauge, labels("peer"), "How long a packet to another node and back takes."},
	{
		"weida_peer_bytes_total", counter, labels("peer", "connection"),
		"Bytes on the two connections with another node, both ways: consensus, and bodies.",
	},
	{
		"weida_peer_exchanges_total", counter, labels("peer", "direction"),
		"Exchanges with another node, each the consensus messages of one round.",
	},
	{"weida_peer_exchanges_under_way", gauge, labels("peer"), "Exchanges that another node has not answered yet."},
	{
		"weida_peer_saturated_total", counter, labels("peer"),
		"Calls that found as many exchanges under way as may be, and were merged into a later one.",
	},
	{
		"weida_peer_gaps_total", counter, labels("peer"),
		"Frames that had not come one heartbeat after a later one of their group, and counted as lost.",
	},
	{
		"weida_peer_dropped_total", counter, labels("peer", "reason"),
		"Frames to or from another node that were not delivered, by reason. Consensus sends again.",
	},
	{"weida_peer_dials_total", counter, labels("peer"), "Attempts to connect with another node."},

	{"weida_registry_version", gauge, nil, "Last applied index of the control log."},
	{"weida_queues", gauge, labels("phase"), "Queues in the registry, by phase."},
	{"weida_connectors", gauge, labels("phase"), "Connectors in the registry, by phase."},
	{"weida_queues_served", gauge, nil, "Queues that this node serves."},
	{"weida_queues_troubled", gauge, nil, "Queues that this node serves and that take no messages."},
	{
		"weida_queues_messages", gauge, labels("state"),
		"Messages in the queues that this node serves: ready, or delivered and unsettled.",
	},
	{"weida_queues_body_bytes", gauge, nil, "Bodies of the messages in the queues that this node serves."},
	{"weida_queues_disk_bytes", gauge, nil, "Directories of the queues that this node serves."},
	{"weida_queues_subscriptions", gauge, nil, "Subscriptions of the queues that this node serves."},
	{"weida_queues_consumers", gauge, nil, "Consumers attached to the queues that this node serves."},
	{"weida_queues_producers", gauge, nil, "Producers with the queues that this node serves."},
	{
		"weida_queues_messages_in_total", counter, nil,
		"Messages that entered the queues of this node, counted from its first scrape.",
	},
	{
		"weida_queues_messages_out_total", counter, labels("reason"),
		"Messages that left the queues of this node, by reason, counted from its first scrape.",
	},
	{
		"weida_queues_messages_released_total", counter, nil,
		"Settles by release in the queues of this node, counted from its first scrape.",
	},

	{
		"weida_admin_mutations_total", counter, labels("outcome"),
		"Changes of resources asked of this node since it started, by what became of them.",
	},
	{"weida_admin_mutations_under_way", gauge, nil, "Changes of resources that wait for their answer."},
	{
		"weida_admin_turned_away_total", counter, nil,
		"Admin requests turned away since the node started, for their host or their headers.",
	},
}

// queueFamilies are scraped on request: one set of series for each queue.
var queueFamilies = []metric{
	{"weida_queue_phase", gauge, labels("queue", "phase"), "Always 1; the label says the queue's phase."},
	{"weida_queue_troubled", gauge, labels("queue"), "1 if the queue takes no messages, 0 if it does."},
	{"weida_queue_messages", gauge, labels("queue", "state"), "Messages: ready, or delivered and unsettled."},
	{"weida_queue_body_bytes", gauge, labels("queue"), "Bodies of the messages in the queue."},
	{"weida_queue_disk_bytes", gauge, labels("queue"), "The queue's directory."},
	{"weida_queue_subscriptions", gauge, labels("queue"), "Subscriptions of the queue."},
	{"weida_queue_consumers", gauge, labels("queue"), "Consumers attached to the queue."},
	{"weida_queue_producers", gauge, labels("queue"), "Producers with the queue."},
	{"weida_queue_messages_in_total", counter, labels("queue"), "Messages that entered the queue since it was made."},
	{
		"weida_queue_messages_out_total", counter, labels("queue", "reason"),
		"Messages that left the queue since it was made, by reason.",
	},
	{
		"weida_queue_messages_released_total", counter, labels("queue"),
		"Settles by release in the queue since it was made.",
	},
}
