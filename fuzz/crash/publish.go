package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// answer is one line of `pub -o json`.
type answer struct {
	Seq      uint64 `json:"seq"`
	Offset   uint64 `json:"offset"`
	Term     uint64 `json:"term"`
	Outcome  string `json:"outcome"`
	Evidence struct {
		Level   string `json:"level"`
		Flushed bool   `json:"flushed"`
	} `json:"evidence"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// publisher is one `pub --lines` process and what it was given.
type publisher struct {
	*client
	base     string // its files: base.lines, base.out, base.err
	want     string
	messages []*message
}

// publisher starts one with a random number of lines.
func (r *run) publisher() (*publisher, error) {
	r.streams++
	p := &publisher{base: filepath.Join(r.round, "pub-"+strconv.Itoa(r.streams)), want: "stored:written"}
	if r.rng.IntN(3) == 0 {
		p.want = "stored:flushed"
	}
	var text bytes.Buffer
	for range 1 + r.rng.IntN(r.o.lines) {
		body := randomLine(r.rng, r.streams, len(p.messages))
		p.messages = append(p.messages, r.model.send(r.streams, body))
		text.Write(body)
		text.WriteByte('\n')
	}
	if err := os.WriteFile(p.base+".lines", text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(p.base + ".out")
	if err != nil {
		return nil, err
	}
	toFile := func(c *exec.Cmd) error { c.Stdout = out; return nil }
	p.client, err = r.node.client(p.base, toFile, "pub", queue, "--lines", p.base+".lines", "--want", p.want, "-o", "json")
	return p, errors.Join(err, out.Close())
}

// randomLine is a body that no other line equals: mostly short, now and then larger than what lies in the log itself.
func randomLine(rng *rand.Rand, stream, line int) []byte {
	size := 1 + rng.IntN(300)
	switch rng.IntN(200) {
	case 0:
		size = 70_000 + rng.IntN(200_000)
	case 1, 2, 3:
		size = rng.IntN(40_000)
	}
	raw := make([]byte, size*3/4+1)
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	return base64.RawStdEncoding.AppendEncode(fmt.Appendf(nil, "%d/%d/", stream, line), raw)
}

// collect reads what the process was answered. A last line without an end is one that it was killed in.
func (p *publisher) collect(m *model) error {
	text, err := os.ReadFile(p.base + ".out")
	if err != nil {
		return err
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, line := range lines {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if i >= len(p.messages) {
			return fmt.Errorf("%s.out: more answers than messages", p.base)
		}
		if err := p.take(m, p.messages[i], line); err != nil {
			return fmt.Errorf("%s.out line %d: %w", p.base, i+1, err)
		}
	}
	return nil
}

// take notes one answer. Answers come in the order of sequence, so the place names the message.
func (p *publisher) take(m *model, msg *message, line []byte) error {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return err
	}
	switch a.Outcome {
	case "ok":
		if a.Evidence.Level != "stored" {
			return fmt.Errorf("asked for %s, answered ok with level %q", p.want, a.Evidence.Level)
		}
		if p.want == "stored:flushed" && !a.Evidence.Flushed {
			return fmt.Errorf("asked for %s, answered ok without flushed", p.want)
		}
		return m.confirm(msg, a.Offset, a.Term, a.Evidence.Flushed)
	case "refused":
		m.refuse(msg)
		return nil
	case "indeterminate":
		return nil
	}
	return fmt.Errorf("outcome %q", a.Outcome)
}

// delivered is one line of `sub -o json`.
type delivered struct {
	Offset uint64 `json:"offset"`
	Term   uint64 `json:"term"`
	Length int64  `json:"length"`
	Body   []byte `json:"body"`
}

// parseDeliveries reads the lines of a consumer until it ends, or until stop says so.
func parseDeliveries(in *bufio.Reader, stop func(delivery) bool) (got []delivery, err error) {
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return got, nil // a line without an end was cut by a kill
		}
		if err != nil {
			return got, fmt.Errorf("consumer: %w", err)
		}
		var d delivered
		if err := json.Unmarshal(line, &d); err != nil {
			return got, fmt.Errorf("consumer: %w in %q", err, line)
		}
		if d.Length != int64(len(d.Body)) {
			return got, fmt.Errorf("consumer: offset %d: length %d, body of %d bytes", d.Offset, d.Length, len(d.Body))
		}
		got = append(got, delivery{d.Offset, d.Term, digestOf(d.Body)})
		if stop != nil && stop(got[len(got)-1]) {
			return got, nil
		}
	}
}
