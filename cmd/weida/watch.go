package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/admin"
	"weida/broker/wire"
)

// watchLine is one change as JSON.
type watchLine struct {
	Type            admin.EventType `json:"type"` // added, modified, deleted; listed of what was there at the start
	ResourceVersion uint64          `json:"resourceVersion"`
	Object          json.RawMessage `json:"object"`
}

// watch prints what there is and goes on with every change, until it is interrupted. A connection that is lost is made
// again behind the last change that was told; where that is not held any more, it lists anew.
func watch(cmd *cobra.Command, args []string, form string) error {
	t, err := parseTarget(args)
	switch {
	case err != nil:
		return err
	case t.all:
		return errors.New("--watch is of one kind; say `queues`, `connectors` or `nodes`")
	case form == "yaml":
		return errors.New("--watch prints a table, or one change a line with -o json")
	}
	a, err := adminOf(cmd)
	if err != nil {
		return err
	}
	w := &watcher{api: a, target: t, form: form, out: os.Stdout}
	ctx := cmd.Context()
	if err := w.list(ctx); err != nil {
		return err
	}
	pause := pollFirst
	for {
		told, err := w.follow(ctx)
		var refused *wire.Error
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) && refused.Code == wire.WatchCompacted:
			fmt.Fprintln(os.Stderr, "the changes behind the last one are not held any more; this is what stands now")
			err = w.list(ctx)
		case errors.As(err, &refused) && refused.Code != wire.Stopping:
			return err
		}
		if told {
			pause = pollFirst
		}
		if err != nil {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil
			}
			pause = min(2*pause, pollLast)
		}
	}
}

// watcher prints what a watch tells.
type watcher struct {
	api    *api
	target target
	form   string
	out    io.Writer
	at     uint64 // everything up to here was printed
	headed bool
}

func (w *watcher) wanted(name string) bool {
	for _, n := range w.target.names {
		if n == name {
			return true
		}
	}
	return len(w.target.names) == 0
}

// list prints what there is.
func (w *watcher) list(ctx context.Context) error {
	items, at, err := w.api.listAt(ctx, w.target.kind)
	if err != nil {
		return err
	}
	w.at = at
	for _, it := range items {
		if err := w.print("listed", it.Metadata.ResourceVersion, it); err != nil {
			return err
		}
	}
	return nil
}

// print prints one change.
func (w *watcher) print(typ admin.EventType, version uint64, it *item) error {
	if !w.wanted(it.Metadata.Name) {
		return nil
	}
	if w.form == "json" {
		b, err := json.Marshal(watchLine{typ, version, it.raw})
		if err == nil {
			_, err = fmt.Fprintf(w.out, "%s\n", b)
		}
		return err
	}
	row, now := rowOf(w.target.kind), time.Now()
	tab := tabwriter.NewWriter(w.out, watchCell, 8, 2, ' ', 0)
	if !w.headed {
		fmt.Fprintln(tab, "CHANGE\tVERSION\t"+strings.Join(row(nil, w.form == "wide", now), "\t"))
		w.headed = true
	}
	fmt.Fprintf(tab, "%s\t%d\t%s\n", typ, version, strings.Join(row(it, w.form == "wide", now), "\t"))
	return tab.Flush()
}

// watchCell is how wide a column is at least: lines come one by one, and are to stand below each other.
const watchCell = 12

// follow prints the changes of one connection, and says whether there were some.
func (w *watcher) follow(ctx context.Context) (told bool, err error) {
	q := url.Values{"watch": {"1"}, "resourceVersion": {strconv.FormatUint(w.at, 10)}}
	patient := &http.Client{Transport: w.api.http.Transport, CheckRedirect: w.api.http.CheckRedirect} // it has no end
	res, err := w.api.send(ctx, patient, http.MethodGet, w.target.kind.path(""), q, nil)
	if err != nil {
		if nothingThere(err) {
			w.api.bases = append(w.api.bases[1:], w.api.bases[0])
		}
		return false, err
	}
	defer func() { _ = res.Body.Close() }() // of no more use
	if res.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(res.Body, apiAnswerMax))
		if err != nil {
			return false, err
		}
		return false, w.api.refusal(http.MethodGet, res.Status, res.StatusCode, b)
	}
	lines := bufio.NewReader(res.Body)
	var entry []watchLine // of the entry that is being told
	for {
		e, id, err := nextEvent(lines)
		if err != nil {
			return told, err
		}
		told = true
		switch e.Type {
		case admin.Ended:
			if e.Error != nil {
				return told, e.Error
			}
			return told, io.ErrUnexpectedEOF
		case admin.Progress:
		default:
			entry = append(entry, watchLine{e.Type, e.ResourceVersion, e.Object})
		}
		if id == 0 {
			continue
		}
		// Only now is the entry whole: what a cut connection told of one is told again.
		for _, l := range entry {
			it, err := newItem(l.Object)
			if err != nil {
				return told, w.api.strange(err)
			}
			if err := w.print(l.Type, l.ResourceVersion, it); err != nil {
				return told, err
			}
		}
		entry, w.at = nil, id
	}
}

// event is an event of a watch as this side reads it.
type event struct {
	Type            admin.EventType `json:"type"`
	ResourceVersion uint64          `json:"resourceVersion"`
	Object          json.RawMessage `json:"object"`
	Error           *apiError       `json:"error"`
}

// nextEvent reads one server-sent event, and its id if it has one.
func nextEvent(r *bufio.Reader) (e event, id uint64, err error) {
	data := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return e, 0, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			if id, err = strconv.ParseUint(value, 10, 64); err != nil {
				return e, 0, err
			}
		case "data":
			data = value
		case "":
			if data != "" {
				return e, id, json.Unmarshal([]byte(data), &e)
			}
		}
	}
}
