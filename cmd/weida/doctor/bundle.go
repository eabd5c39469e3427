package doctor

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"
)

// Bundle is what an archive is made of. Only Report is required.
type Bundle struct {
	Report *Report // made of the same target
	// Node is the node file as it was read: known keys alone, no comments. Nil leaves it out.
	Node any
	// Ask asks the node's admin port, which reads and changes nothing; nil where none is known.
	Ask func(ctx context.Context, method, path string, q url.Values, body []byte) ([]byte, error)
	// Logs are files that hold what nodes wrote to standard error.
	Logs []string
	// Progress is told what is being done now; nil is not.
	Progress func(string)
}

// Contents says what is in an archive and what is not.
type Contents struct {
	In  []Entry `json:"in"`
	Out []Left  `json:"out"`
}

// Entry is one file of an archive.
type Entry struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	Bytes int    `json:"bytes"`

	data []byte
}

// Left is something that an archive has not, and why.
type Left struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// never is what no archive has, whatever there is.
var never = []Left{
	{"private keys", "secret"},
	{"message bodies, and the logs and snapshots that hold them", "secret; sizes and names of files are there"},
	{"producer and subscription ids, headers of messages", "they belong to those who chose them"},
	{"comments of the node file, names of files that the store does not know", "nobody knows what stands there"},
	{"values of connector policies, and what stands in quotes in messages of errors", "they may be passwords"},
	{"environment and command line of processes", "they may hold passwords"},
}

// bundleDir is the directory in the archive.
const bundleDir = "weida-bundle"

// fileMax bounds one file of an archive, in bytes; what is beyond it is left out as a whole.
const fileMax = 64 << 20

// errNone is a source that there is not here; its text is why.
type errNone string

func (e errNone) Error() string { return string(e) }

// source gives one file of an archive, with nothing secret in it.
type source struct {
	name, what string
	get        func(context.Context, *Bundle) ([]byte, error)
}

var sources = []source{
	{"doctor.txt", "what the doctor found", doctorText},
	{"doctor.json", "the same, with the facts behind it", doctorJSON},
	{"node.yaml", "the node file, known keys alone", nodeFile},
	{"version.json", "version of the node that runs", ask("/version", func() any { return new(versionDoc) })},
	{"status.json", "nodes and groups, as `weida status -o " +
		"json`", ask("/v1/cluster", func() any { return new(clusterDoc) })},
	{"node-status.json", "the node in one look", ask("/v1/status", func() any { return new(statusDoc) })},
	{"groups.json", "what this node knows of its groups", ask("/v1/local/groups", func() any { return new(factsDoc) })},
	{"quorum.json", "leaders and voters, as `weida quorum describe -o json`", quorum},
	{"nodes.json", "the members of the cluster", ask("/v1/nodes", func() any { return new(nodesDoc) })},
	{"queues.json", "the registry: queues", ask("/v1/queues", func() any { return new(queuesDoc) })},
	{"connectors.json", "the registry: connectors", ask("/v1/connectors", func() any { return new(connectorsDoc) })},
	{"metrics.txt", "metrics, sums over all queues", metrics},
	{"goroutines.txt", "what the node's goroutines do", goroutines},
	{"files.txt", "names and sizes of the data directory's files", files},
	{"kernel.txt", "kernel, memory and settings of this machine", kernelFacts},
	{"log.txt", "ends of logs", logs},
}

// Write gathers an archive and writes it. What cannot be had is left out and told; an error is one of writing, or of
// ctx.
func (b *Bundle) Write(ctx context.Context, w io.Writer) (*Contents, error) {
	c := &Contents{}
	secrets := secretsOf(b.Report.Facts.Data)
	for _, s := range sources {
		if b.Progress != nil {
			b.Progress("gathering " + s.name)
		}
		data, err := s.get(ctx, b)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch {
		case err == nil && len(data) > fileMax:
			err = fmt.Errorf("it has more than %s", size(fileMax))
		case err == nil && secrets.in(data):
			err = errors.New("a private key was found in it")
		}
		if err != nil {
			c.Out = append(c.Out, Left{s.name + ", " + s.what, scrub(err.Error())})
			continue
		}
		c.In = append(c.In, Entry{Name: s.name, What: s.what, Bytes: len(data), data: data})
	}
	if b.Progress != nil {
		b.Progress("")
	}
	c.Out = append(c.Out, never...)
	list := c.Text()
	c.In = append(c.In, Entry{Name: "CONTENTS.txt", What: "this list", Bytes: len(list), data: list})
	return c, writeTar(w, c.In, b.Report.Facts.At)
}

// Text is the list for people.
func (c *Contents) Text() []byte {
	var b bytes.Buffer
	longest := 0
	for _, e := range c.In {
		longest = max(longest, len(e.Name))
	}
	b.WriteString("In it:\n")
	for _, e := range c.In {
		fmt.Fprintf(&b, "  %-*s  %10s  %s\n", longest, e.Name, size(uint64(e.Bytes)), e.What)
	}
	b.WriteString("\nLeft out:\n")
	for _, l := range c.Out {
		fmt.Fprintf(&b, "  %s: %s\n", l.What, l.Why)
	}
	b.WriteString("\nNames of queues and nodes, addresses, fingerprints and paths are in it: look into it before you " +
		"send it.\n")
	return b.Bytes()
}

func writeTar(w io.Writer, entries []Entry, at time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, e := range entries {
		err := t.WriteHeader(&tar.Header{
			Name: bundleDir + "/" + e.Name, Mode: 0o600, Size: int64(len(e.data)), ModTime: at, Format: tar.FormatPAX,
		})
		if err == nil {
			_, err = t.Write(e.data)
		}
		if err != nil {
			return err
		}
	}
	return cmp.Or(t.Close(), z.Close())
}
