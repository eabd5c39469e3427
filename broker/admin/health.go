package admin

import (
	"fmt"
	"net/http"
	"strings"

	"weida/broker/control"
)

// problemsShown bounds the lines of a health text that nobody asked to be verbose.
const problemsShown = 100

// HealthBody is the JSON form of the answers of /livez and /readyz.
type HealthBody struct {
	OK       bool      `json:"ok"`
	Problems []Problem `json:"problems"`
}

// health is the node's own judgement, and what only shows between two looks: groups that commit nothing of what waits.
func (h *handler) health() Health {
	health := h.node.Health()
	local := h.node.Local()
	h.stalls.note(&local)
	for i := range local.Groups {
		g := &local.Groups[i]
		if g.StalledMS < stalledMax {
			continue
		}
		name := "the control log"
		if g.Queue != "" {
			name = "queue " + g.Queue
		}
		health.Ready = append(health.Ready, Problem{
			Object: name, What: fmt.Sprintf("%d proposals wait and nothing was committed for %d ms", g.Waiting, g.StalledMS),
			Effect: "what waits is not confirmed; what was confirmed stands",
			Remedy: "look at its voters with `weida quorum describe`, and bring back those that do not answer",
		})
	}
	return health
}

func (h *handler) livez(w http.ResponseWriter, c *call) error {
	return answerHealth(w, c, h.health().Alive)
}

// readyz shows what keeps traffic away; a node that has to be restarted is not ready either.
func (h *handler) readyz(w http.ResponseWriter, c *call) error {
	health := h.health()
	return answerHealth(w, c, append(append([]Problem(nil), health.Alive...), health.Ready...))
}

func answerHealth(w http.ResponseWriter, c *call, problems []Problem) error {
	status := http.StatusOK
	if len(problems) > 0 {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(c.Header.Get("Accept"), "application/json") {
		body := HealthBody{OK: len(problems) == 0, Problems: problems}
		if problems == nil {
			body.Problems = []Problem{}
		}
		writeJSON(w, status, body)
		return nil
	}
	write(w, status, textKind, healthText(problems, c.given("verbose")))
	return nil
}

// healthText is one problem a line.
func healthText(problems []Problem, verbose bool) []byte {
	if len(problems) == 0 {
		return []byte("ok\n")
	}
	var b strings.Builder
	for i, p := range problems {
		if i == problemsShown && !verbose {
			fmt.Fprintf(&b, "and %d more\n", len(problems)-i)
			break
		}
		line := p.Object + ": " + strings.TrimSuffix(p.What, ".")
		if verbose {
			line += "; " + strings.TrimSuffix(p.Effect, ".") + "; " + strings.TrimSuffix(p.Remedy, ".")
		}
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return []byte(b.String())
}

func (h *handler) version(w http.ResponseWriter, _ *call) error {
	writeJSON(w, http.StatusOK, h.o.Version)
	return nil
}

// Status is the answer of GET /v1/status: a node in one look, of bounded size whatever the number of queues.
type Status struct {
	Node            string    `json:"node"`
	Version         Version   `json:"version"`
	ResourceVersion uint64    `json:"resourceVersion"`
	Alive           []Problem `json:"alive"` // at most 100; the text forms tell all
	Ready           []Problem `json:"ready"` // at most 100
	Queues          Sums      `json:"queues"`
	Connectors      Sums      `json:"connectors"`
	Counters        Counters  `json:"counters"`
}

// Sums adds up the resources of one kind.
type Sums struct {
	Count    int                   `json:"count"`
	Phases   map[control.Phase]int `json:"phases"`
	Served   int                   `json:"served"`   // by this node
	Troubled int                   `json:"troubled"` // served, and taking no messages

	Ready         uint64 `json:"ready"`
	Unsettled     uint64 `json:"unsettled"`
	Bytes         uint64 `json:"bytes"`
	DiskBytes     uint64 `json:"diskBytes"`
	Subscriptions int    `json:"subscriptions"`
	Consumers     int    `json:"consumers"`
	Producers     int    `json:"producers"`
}

var phases = []control.Phase{control.Pending, control.Ready, control.Degraded, control.Deleting}

func newSums() Sums {
	s := Sums{Phases: make(map[control.Phase]int)}
	for _, p := range phases {
		s.Phases[p] = 0
	}
	return s
}

func (s *Sums) phase(p control.Phase) {
	s.Count++
	s.Phases[p]++
}

func (s *Sums) add(l Live) {
	s.Served++
	if l.Trouble != "" {
		s.Troubled++
	}
	s.Ready += l.Ready
	s.Unsettled += l.Unsettled
	s.Bytes += l.Bytes
	s.DiskBytes += l.DiskBytes
	s.Subscriptions += l.Subscriptions
	s.Consumers += l.Consumers
	s.Producers += l.Producers
}

func (h *handler) status(w http.ResponseWriter, _ *call) error {
	reg, health := h.node.Registry(), h.health()
	s := Status{
		Node: h.o.Node, Version: h.o.Version, ResourceVersion: reg.Version,
		Alive: first(health.Alive), Ready: first(health.Ready),
		Queues: newSums(), Connectors: newSums(), Counters: h.node.Counters(),
	}
	for i := range reg.Queues {
		s.Queues.phase(reg.Queues[i].Status.Phase)
		if l, ok := h.node.Live(reg.Queues[i].Metadata.UID); ok {
			s.Queues.add(l)
		}
	}
	for i := range reg.Connectors {
		s.Connectors.phase(reg.Connectors[i].Status.Phase)
	}
	writeJSON(w, http.StatusOK, s)
	return nil
}

func first(problems []Problem) []Problem {
	return append([]Problem{}, problems[:min(len(problems), problemsShown)]...)
}
