package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weida/broker/control"
)

// scrapesMax bounds the scrapes of one form that are under way.
const scrapesMax = 4

// metrics answers scrapes from registries of its own.
type metrics struct {
	byDefault, withQueues, queuesAlone http.Handler
}

func newMetrics(h *handler) metrics {
	sums, each := prometheus.NewRegistry(), prometheus.NewRegistry()
	sums.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newScrape(sumFamilies, sumsOf(h)))
	each.MustRegister(newScrape(queueFamilies, eachOf(h.node)))
	// A metric that cannot be told must not hide the others.
	o := promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{h.o.Log}, MaxRequestsInFlight: scrapesMax,
	}
	return metrics{
		byDefault:   promhttp.HandlerFor(sums, o),
		withQueues:  promhttp.HandlerFor(prometheus.Gatherers{sums, each}, o),
		queuesAlone: promhttp.HandlerFor(each, o),
	}
}

// scrapeLog tells the errors of a scrape.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	for _, x := range v {
		if err, ok := x.(error); ok {
			l.log.Warn("admin scrape", "err", err)
		}
	}
}

func (m *metrics) sums(w http.ResponseWriter, c *call) error {
	each, err := c.flag("queues")
	if err != nil {
		return err
	}
	if each {
		m.withQueues.ServeHTTP(w, c.Request)
	} else {
		m.byDefault.ServeHTTP(w, c.Request)
	}
	return nil
}

func (m *metrics) queues(w http.ResponseWriter, c *call) error {
	m.queuesAlone.ServeHTTP(w, c.Request)
	return nil
}

// scrape is a collector that asks the node when it is scraped.
type scrape struct {
	families map[string]family
	tell     func(emit)
}

type family struct {
	metric
	desc *prometheus.Desc
}

// emit sends series on their way.
type emit struct {
	families map[string]family
	to       chan<- prometheus.Metric
}

func newScrape(list []metric, tell func(emit)) *scrape {
	s := &scrape{families: make(map[string]family, len(list)), tell: tell}
	for _, m := range list {
		s.families[m.name] = family{m, prometheus.NewDesc(m.name, m.help, m.labels, nil)}
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *scrape) Describe(to chan<- *prometheus.Desc) {
	for _, f := range s.families {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(to chan<- prometheus.Metric) { s.tell(emit{s.families, to}) }

func (e emit) family(name string) family {
	f, ok := e.families[name]
	if !ok {
		panic("bug: admin: metric " + name + " is not in the catalogue")
	}
	return f
}

// put sends one series. Labels are given in the order of the catalogue.
func (e emit) put(name string, value float64, labels ...string) {
	f := e.family(name)
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	m, err := prometheus.NewConstMetric(f.desc, f.kind, value, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	e.to <- m
}

func (e emit) count(name string, value uint64, labels ...string) {
	e.put(name, float64(value), labels...)
}

// each sends one series for each name of a map.
func (e emit) each(name string, values map[string]uint64) {
	for label, v := range values {
		e.count(name, v, label)
	}
}

func (e emit) histogram(name string, h Histogram) {
	f := e.family(name)
	if len(h.Counts) != len(h.Bounds) {
		e.to <- prometheus.NewInvalidMetric(f.desc, fmt.Errorf("admin: %s: %d bounds, %d counts", name, len(h.Bounds),
			len(h.Counts)))
		return
	}
	buckets := make(map[float64]uint64, len(h.Bounds))
	for i, b := range h.Bounds {
		buckets[b] = h.Counts[i]
	}
	m, err := prometheus.NewConstHistogram(f.desc, h.Count, h.Sum, buckets)
	if err != nil {
		m = prometheus.NewInvalidMetric(f.desc, err)
	}
	e.to <- m
}

// sumsOf tells what is scraped by default.
func sumsOf(h *handler) func(emit) {
	var t tally
	return func(e emit) {
		reg, health := h.node.Registry(), h.health()
		v := h.o.Version
		e.put("weida_build_info", 1, h.o.Node, v.Version, v.Commit)
		e.count("weida_health_problems", uint64(len(health.Alive)), "alive")
		e.count("weida_health_problems", uint64(len(health.Ready)), "ready")
		tellCounters(e, h.node.Counters())

		e.count("weida_registry_version", reg.Version)
		e.put("weida_replicas_lost", float64(lostReplicas(&reg)))
		sums, flows := t.add(h.node, &reg)
		tellSums(e, sums, flows)
		others := newSums()
		for i := range reg.Connectors {
			others.phase(reg.Connectors[i].Status.Phase)
		}
		tellPhases(e, "weida_connectors", others)

		for o := range h.outcomes {
			e.count("weida_admin_mutations_total", h.outcomes[o].Load(), outcomeNames[o])
		}
		e.put("weida_admin_mutations_under_way", float64(len(h.mutating)))
		e.count("weida_admin_turned_away_total", h.door.count())
	}
}

func tellCounters(e emit, c Counters) {
	e.put("weida_connections_open", float64(c.Connections))
	e.count("weida_connections_total", c.ConnectionsTotal)
	e.each("weida_publishes_total", c.Published)
	e.each("weida_refusals_total", c.Refusals)
	e.count("weida_publishes_indeterminate_total", c.Indeterminate)
	e.count("weida_deliveries_total", c.Delivered)
	e.count("weida_settles_total", c.Settled)
	e.count("weida_bodies_in_flight_bytes", c.BodyBytes)
	e.count("weida_flush_rounds_total", c.FlushRounds)
	e.count("weida_flush_files_total", c.FlushFiles)
	e.count("weida_flush_errors_total", c.FlushErrors)
	e.histogram("weida_flush_duration_seconds", c.FlushSeconds)
	e.put("weida_disk_free_bytes", float64(c.Disk.FreeBytes))
	e.put("weida_disk_total_bytes", float64(c.Disk.TotalBytes))
	e.put("weida_disk_reserve_bytes", float64(c.Disk.ReserveBytes))
	e.put("weida_disk_state", 1, c.Disk.State)
	e.count("weida_scrub_bytes_total", c.Scrub.Bytes)
	e.put("weida_consensus_election_seconds", c.Consensus.Election)
	e.put("weida_consensus_heartbeat_seconds", c.Consensus.Heartbeat)
	e.put("weida_consensus_streams_max", float64(c.Consensus.Streams))
	e.count("weida_scrub_passes_total", c.Scrub.Passes)
	e.put("weida_scrub_pass_age_seconds", c.Scrub.PassAge)
	e.count("weida_damage_found_total", c.Scrub.Found)
	e.count("weida_damage_mended_total", c.Scrub.Mended)
	e.put("weida_damage_open", float64(c.Scrub.Open))
	e.each("weida_replicas_damaged_total", c.Damaged)
	e.count("weida_replicas_set_aside_total", c.SetAside)
	e.put("weida_replicas_lying_aside", float64(c.LyingAside))
	for i := range c.Links {
		tellLink(e, &c.Links[i])
	}
}

func tellLink(e emit, l *LinkCounters) {
	peer, up := strconv.FormatUint(l.Peer, 10), 0.0
	if l.Up {
		up = 1
	}
	e.put("weida_peer_up", up, peer)
	e.put("weida_peer_round_trip_seconds", l.RoundTrip, peer)
	e.count("weida_peer_bytes_total", l.RaftBytes, peer, "raft")
	e.count("weida_peer_bytes_total", l.PayloadBytes, peer, "payload")
	e.count("weida_peer_exchanges_total", l.Sent, peer, "sent")
	e.count("weida_peer_exchanges_total", l.Received, peer, "received")
	e.put("weida_peer_exchanges_under_way", float64(l.UnderWay), peer)
	e.count("weida_peer_saturated_total", l.Saturated, peer)
	e.count("weida_peer_gaps_total", l.Gaps, peer)
	for reason, n := range l.Dropped {
		e.count("weida_peer_dropped_total", n, peer, reason)
	}
	e.count("weida_peer_dials_total", l.Dials, peer)
}

func tellPhases(e emit, name string, s Sums) {
	for phase, n := range s.Phases {
		e.put(name, float64(n), string(phase))
	}
}

func tellSums(e emit, s Sums, f flows) {
	tellPhases(e, "weida_queues", s)
	e.put("weida_queues_served", float64(s.Served))
	e.put("weida_queues_troubled", float64(s.Troubled))
	e.count("weida_queues_messages", s.Ready, "ready")
	e.count("weida_queues_messages", s.Unsettled, "unsettled")
	e.count("weida_queues_body_bytes", s.Bytes)
	e.count("weida_queues_disk_bytes", s.DiskBytes)
	e.put("weida_queues_subscriptions", float64(s.Subscriptions))
	e.put("weida_queues_consumers", float64(s.Consumers))
	e.put("weida_queues_producers", float64(s.Producers))
	e.count("weida_queues_messages_in_total", f.in)
	e.count("weida_queues_messages_out_total", f.accepted, "accepted")
	e.count("weida_queues_messages_out_total", f.rejected, "rejected")
	e.count("weida_queues_messages_out_total", f.purged, "purged")
	e.count("weida_queues_messages_released_total", f.released)
}

// eachOf tells of each queue.
func eachOf(n Node) func(emit) {
	return func(e emit) {
		reg := n.Registry()
		for i := range reg.Queues {
			q := &reg.Queues[i]
			e.put("weida_queue_phase", 1, q.Metadata.Name, string(q.Status.Phase))
			if l, ok := n.Live(q.Metadata.UID); ok {
				tellQueue(e, q, l)
			}
		}
	}
}

func tellQueue(e emit, q *control.Queue, l Live) {
	name, troubled := q.Metadata.Name, 0.0
	if l.Trouble != "" {
		troubled = 1
	}
	e.put("weida_queue_troubled", troubled, name)
	e.count("weida_queue_messages", l.Ready, name, "ready")
	e.count("weida_queue_messages", l.Unsettled, name, "unsettled")
	e.count("weida_queue_body_bytes", l.Bytes, name)
	e.count("weida_queue_disk_bytes", l.DiskBytes, name)
	e.put("weida_queue_subscriptions", float64(l.Subscriptions), name)
	e.put("weida_queue_consumers", float64(l.Consumers), name)
	e.put("weida_queue_producers", float64(l.Producers), name)
	e.count("weida_queue_messages_in_total", l.In, name)
	e.count("weida_queue_messages_out_total", l.Accepted, name, "accepted")
	e.count("weida_queue_messages_out_total", l.Rejected, name, "rejected")
	e.count("weida_queue_messages_out_total", l.Purged, name, "purged")
	e.count("weida_queue_messages_released_total", l.Released, name)
}
