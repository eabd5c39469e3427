package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"weida/broker/admin"
	"weida/broker/endpoint"
)

// The documents of the admin port, each with what is not to be told taken out by a redact of its own.
type (
	versionDoc    struct{ admin.Version }
	clusterDoc    struct{ admin.ClusterStatus }
	statusDoc     struct{ admin.Status }
	factsDoc      struct{ admin.Facts }
	nodesDoc      struct{ admin.List[admin.Member] }
	queuesDoc     struct{ admin.List[admin.Queue] }
	connectorsDoc struct{ admin.List[admin.Connector] }
)

// redacts is a document that takes out of itself what is known to be somebody's secret.
type redacts interface{ redact() }

// policyKnown are the values of a connector's policy that say nothing.
var policyKnown = []string{"newline", "length", "true", "false", "begin", "end"}

func (d *connectorsDoc) redact() {
	for i := range d.Items {
		c := &d.Items[i]
		policy := make(map[string]string)
		for k, v := range c.Spec.Policy {
			if k != "framing" && k != "follow" && k != "startAt" {
				policy[gone] = gone
				continue
			}
			policy[k] = gone
			for _, known := range policyKnown {
				if v == known {
					policy[k] = v
				}
			}
		}
		c.Spec.Policy = policy
		if c.Spec.Protocol != "file" { // there it is a name in a directory; elsewhere it may hold a password
			c.Spec.Address = gone
		}
		for j := range c.Status.Conditions {
			c.Status.Conditions[j].Message = gone // it may quote the spec
		}
	}
}

func (d *statusDoc) redact() {
	for _, list := range [][]admin.Problem{d.Alive, d.Ready} {
		for i := range list {
			if !strings.HasPrefix(list[i].Object, "queue ") && list[i].Object != "node" {
				list[i].What = gone // as the conditions of connectors
			}
		}
	}
}

// asked asks the admin port.
func (b *Bundle) asked(ctx context.Context, method, path string, q url.Values, body []byte) ([]byte, error) {
	if b.Ask == nil {
		return nil, errNone("no admin port is known: name the node file with --config")
	}
	return b.Ask(ctx, method, path, q, body)
}

// ask is a source that is one document of the admin port.
func ask(path string, doc func() any) func(context.Context, *Bundle) ([]byte, error) {
	return func(ctx context.Context, b *Bundle) ([]byte, error) {
		raw, err := b.asked(ctx, http.MethodGet, path, nil, nil)
		if err != nil {
			return nil, err
		}
		d := doc()
		if err := json.Unmarshal(raw, d); err != nil {
			return nil, errors.New("the answer is none of this version's")
		}
		if r, ok := d.(redacts); ok {
			r.redact()
		}
		return tidyJSON(d)
	}
}

// quorumMax bounds the groups that are described.
const quorumMax = 1000

func quorum(ctx context.Context, b *Bundle) ([]byte, error) {
	raw, err := b.asked(ctx, http.MethodGet, "/v1/queues", nil, nil)
	if err != nil {
		return nil, err
	}
	var list queuesDoc
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("the answer is none of this version's")
	}
	groups := []string{admin.ControlName}
	for i := range list.Items {
		if q := &list.Items[i]; q.Spec.Replicas > 1 && len(groups) < quorumMax {
			groups = append(groups, admin.QueueGroup(q.Metadata.Name))
		}
	}
	body, err := json.Marshal(admin.QuorumRequest{Groups: groups})
	if err != nil {
		return nil, err
	}
	raw, err = b.asked(ctx, http.MethodPost, "/v1/quorum/describe", url.Values{"relay": {"1"}}, body)
	if err != nil {
		return nil, err
	}
	var r admin.QuorumResponse
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, errors.New("the answer is none of this version's")
	}
	return tidyJSON(&r)
}

// metricLine is a line that a scrape may have: a comment, or a value with labels whose values say nothing.
var metricLine = regexp.MustCompile(`^(# (HELP|TYPE) )?` +
	`(weida|go|process|promhttp)_[a-z0-9_]+(\{([a-z_]+="[^"]*",?)*\})? .*$`)

// metricLabels are the labels that are told.
var metricLabels = map[string]bool{
	"node": true, "version": true, "commit": true, "evidence": true, "code": true, "check": true, "phase": true,
	"state": true, "reason": true, "peer": true, "connection": true, "direction": true, "outcome": true, "le": true,
	"quantile": true,
}

var (
	metricLabel = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	metricValue = regexp.MustCompile(`^[A-Za-z0-9_.:+(), -]*$`)
)

func metrics(ctx context.Context, b *Bundle) ([]byte, error) {
	raw, err := b.asked(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return nil, err
	}
	return tellMetrics(string(raw)), nil
}

func tellMetrics(text string) []byte {
	var out bytes.Buffer
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\n")
		fine := metricLine.MatchString(l)
		if labels, _, value := cutLabels(l); fine && !strings.HasPrefix(l, "#") {
			for _, m := range metricLabel.FindAllStringSubmatch(labels, -1) {
				fine = fine && metricLabels[m[1]] && metricValue.MatchString(m[2])
			}
			fine = fine && metricNumber.MatchString(value)
		}
		if fine {
			out.WriteString(scrubComment(l) + "\n")
		}
	}
	return out.Bytes()
}

var metricNumber = regexp.MustCompile(`^[-+0-9.eE]+$|^[-+]?Inf$|^NaN$`)

// cutLabels takes a line of a scrape apart.
func cutLabels(l string) (labels, name, value string) {
	at := strings.LastIndexByte(l, ' ')
	name, value = l[:max(at, 0)], l[at+1:]
	if from := strings.IndexByte(name, '{'); from >= 0 {
		name, labels = name[:from], name[from:]
	}
	return labels, name, value
}

// scrubComment leaves values, which were looked at, as they are.
func scrubComment(l string) string {
	if strings.HasPrefix(l, "#") {
		return scrub(l)
	}
	return l
}

// stackLine is a line of a goroutine profile: a count with addresses, or a frame.
var stackLine = regexp.MustCompile(`^(goroutine profile: total \d+|\d+ @( 0x[0-9a-f]+)*|#\t0x[0-9a-f]+\t.*|)$`)

func goroutines(ctx context.Context, b *Bundle) ([]byte, error) {
	raw, err := b.asked(ctx, http.MethodGet, "/debug/pprof/goroutine", url.Values{"debug": {"1"}}, nil)
	var away *endpoint.UnreachableError
	switch {
	case errors.As(err, &away) || b.Ask == nil:
		return nil, err
	case err != nil:
		return nil, errNone("the node serves no profiles")
	}
	var out bytes.Buffer
	for l := range strings.Lines(string(raw)) {
		if l = strings.TrimRight(l, "\n"); stackLine.MatchString(l) { // labels, which hold values, are not
			out.WriteString(scrub(l) + "\n")
		}
	}
	return out.Bytes(), nil
}

func doctorText(_ context.Context, b *Bundle) ([]byte, error) {
	return []byte(scrub(string(NewReport(told(b.Report.Facts)).Text(120)))), nil
}

func doctorJSON(_ context.Context, b *Bundle) ([]byte, error) {
	return tidyJSON(NewReport(told(b.Report.Facts)))
}

// told are facts without what they quote of files that nobody knows.
func told(f *Facts) *Facts {
	c := *f
	if c.Access.Example != "" {
		c.Access.Example = gone
	}
	if c.Store.Foreign {
		c.Store.Bad = "not a weida data directory"
	}
	for i := range c.Builds.Ready {
		if o := c.Builds.Ready[i].Object; !strings.HasPrefix(o, "queue ") && o != "node" {
			c.Builds.Ready = append([]admin.Problem(nil), c.Builds.Ready...)
			c.Builds.Ready[i].What = gone
		}
	}
	return &c
}

func nodeFile(_ context.Context, b *Bundle) ([]byte, error) {
	if b.Node == nil {
		return nil, errNone("no node file was named: --config does")
	}
	raw, err := yaml.Marshal(b.Node)
	return []byte(scrub(string(raw))), err
}

// knownName are the names that the store and the node give.
var knownName = regexp.MustCompile(`^(LOCK|disk|clean|incarnation|pid|joined|node\.(key|crt)|control|groups|` +
	`quarantine|lost\+found|manifest|hardstate|[0-9a-f-]+(\.(seg|body|snap))?)(\.(tmp|new|old))*$`)

// filesMax bounds the lines about files.
const filesMax = 100_000

func files(_ context.Context, b *Bundle) ([]byte, error) {
	var out bytes.Buffer
	data, count := b.Report.Facts.Data, 0
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != data {
			return nil // a node that runs makes and removes files
		}
		if err != nil {
			return err
		}
		if count++; count > filesMax {
			out.WriteString("and more\n")
			return filepath.SkipAll
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(data, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %12d  %s  %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format("2006-01-02T15:04:05Z"),
			knownPath(name))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNone("there is no data directory yet")
	}
	return out.Bytes(), err
}

// knownPath is a path with every name left out that nobody but its maker knows.
func knownPath(path string) string {
	if path == "." {
		return path
	}
	parts := strings.Split(path, string(filepath.Separator))
	for i, p := range parts {
		if !knownName.MatchString(p) {
			parts[i] = gone
		}
	}
	return strings.Join(parts, "/")
}
