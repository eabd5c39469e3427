package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weida/broker/control"
	"weida/broker/wire"
)

func newApply() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "make resources, or change them to what a file says",
		Long: "Reads resources, as many as there are in the files, and asks the node for each in order. The same again\n" +
			"changes nothing. What a spec leaves out is the default, not what it was. Files are YAML or JSON; of a\n" +
			"directory all .yaml, .yml and .json files are read. A file with a slip in it is refused before anything\n" +
			"is sent; after that every resource is tried, and the worst answer is the exit status.\n\n" +
			"The answer says that the change is committed, which is not that it is done: --wait returns when it is, and\n" +
			"`describe` shows why it is not.",
		Example: "  weida apply -f orders.yaml\n  weida get queue orders -o yaml | weida apply -f -\n" +
			"  weida apply -f orders.yaml --expected-version 12",
		Args: cobra.NoArgs,
	}
	files := cmd.Flags().StringArrayP("file", "f", nil,
		"`FILE`, directory, or - for standard input; may stand more than once")
	o := putFlags(cmd, control.Apply)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		if len(*files) == 0 {
			return errors.New("apply needs -f FILE; nothing was changed")
		}
		all, err := readManifests(*files)
		if err != nil {
			return err
		}
		return putAll(cmd, all, o(), asJSON)
	}
	return cmd
}

// expectedFlag adds --expected-version; nil is none.
func expectedFlag(cmd *cobra.Command) func() *uint64 {
	v := cmd.Flags().Uint64("expected-version", 0,
		"refuse unless the resource stands at version `N` (metadata.resourceVersion); 0 is \"there is none\"")
	return func() *uint64 {
		if !cmd.Flags().Changed("expected-version") {
			return nil
		}
		return v
	}
}

// putOptions say how resources are asked for.
type putOptions struct {
	verb     control.Verb
	expected *uint64
	wait     bool
	dry      bool
}

// putFlags adds --expected-version and --wait.
func putFlags(cmd *cobra.Command, verb control.Verb) func() putOptions {
	expected := expectedFlag(cmd)
	wait := cmd.Flags().Bool("wait", false, "return when what is wanted is done")
	dry := dryFlag(cmd)
	return func() putOptions { return putOptions{verb, expected(), *wait && !*dry, *dry} }
}

// putAll asks for every resource in order and answers for each.
func putAll(cmd *cobra.Command, all []*manifest, o putOptions, asJSON bool) error {
	if o.expected != nil && len(all) > 1 {
		return fmt.Errorf("--expected-version is of one resource, and %d were given; nothing was changed; "+
			"write metadata.resourceVersion into each", len(all))
	}
	a, err := adminOf(cmd)
	if err != nil {
		return err
	}
	r := &answers{out: os.Stdout, json: asJSON}
	var under []*item
	for _, m := range all {
		if cmd.Context().Err() != nil {
			break
		}
		it, err := a.put(cmd.Context(), m, o.verb, o.expected, o.dry)
		if err != nil {
			err = addVersions(err, o.expected, m.version)
		}
		if !r.tell(m.kind, m.name, outcomeOf(it, o.dry), it, err) {
			break
		}
		if it != nil {
			under = append(under, it)
		}
	}
	if o.wait {
		for _, it := range under {
			now, err := done(cmd.Context(), a, it)
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("interrupted; the change is committed, and the node goes on with it without this command")
			}
			r.follow(kindOf(it.Kind), it.Metadata.Name, "ready", now, err)
		}
	}
	return r.end(cmd.Context(), len(all))
}

// patienceTold is how often a node is asked before people are told why it takes so long: about a second.
const patienceTold = 7

// done waits until the generation that was asked for, or a later one, is done. Where that takes long, why
// it is not done is told as often as the reason changes.
func done(ctx context.Context, a *api, asked *item) (it *item, err error) {
	k, reason, tries := kindOf(asked.Kind), "", 0
	err = poll(ctx, func() (bool, error) {
		it, err = a.get(ctx, k, asked.Metadata.Name)
		switch {
		case err != nil:
			return false, err
		case it.Metadata.UID != asked.Metadata.UID:
			return false, fmt.Errorf("it was deleted meanwhile, and another one stands in its place")
		case it.Status.ObservedGeneration >= asked.Metadata.Generation && it.Status.Phase != control.Pending:
			return true, nil
		}
		tries++
		if now := fmt.Sprint(it.Status.Conditions); tries > patienceTold && now != reason {
			reason = now
			warn(k, it)
		}
		return false, nil
	})
	return it, err
}

const (
	pollFirst = 10 * time.Millisecond
	pollLast  = time.Second
)

// poll asks again and again, with growing pauses, until it has its answer.
func poll(ctx context.Context, ask func() (bool, error)) error {
	for pause := pollFirst; ; pause = min(2*pause, pollLast) {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// outcomeOf says what a change did, or would do if it is dry.
func outcomeOf(it *item, dry bool) string {
	switch {
	case it == nil:
		return ""
	case dry && it.Changed && it.Metadata.Generation == 1 && it.Metadata.UID == it.Metadata.ResourceVersion:
		return "would be created"
	case dry && it.Changed:
		return "would be configured"
	case it.made:
		return "created"
	case it.Changed:
		return "configured"
	}
	return "unchanged"
}

// dryFlag adds --dry-run.
func dryFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("dry-run", false, "have the node say what would be done, and do nothing")
}

// addVersions puts both versions into a conflict that does not name them.
func addVersions(err error, expected *uint64, version uint64) error {
	var refused *apiError
	if !errors.As(err, &refused) || refused.code() != wire.Conflict || refused.Now == nil {
		return err
	}
	if expected != nil {
		version = *expected
	}
	stands := refused.Now.Metadata.ResourceVersion
	if !strings.Contains(refused.Message, strconv.FormatUint(version, 10)) ||
		!strings.Contains(refused.Message, strconv.FormatUint(stands, 10)) {
		refused.Message += fmt.Sprintf(" Version %d was expected, %d stands.", version, stands)
	}
	return err
}

// answers prints what became of each resource and remembers the worst.
type answers struct {
	out   io.Writer
	json  bool
	told  int
	worst int
}

// answerLine is one answer as JSON.
type answerLine struct {
	Kind     control.Kind    `json:"kind"`
	Name     string          `json:"name"`
	Result   string          `json:"result"` // created, configured, unchanged, deleting, deleted, refused, indeterminate …
	Code     string          `json:"code,omitempty"`
	Detail   string          `json:"detail,omitempty"`
	Resource json.RawMessage `json:"resource"` // as it stands
}

// tell prints one answer; false says that there is no use in trying the next.
func (r *answers) tell(k kindInfo, name, result string, it *item, err error) bool {
	r.told++
	line := answerLine{Kind: k.kind, Name: name, Result: result}
	if it != nil {
		line.Resource = it.raw
	}
	if err != nil {
		line.Result, line.Code, line.Detail = failed(err), codeOf(err), err.Error()
		var refused *apiError
		if errors.As(err, &refused) {
			line.Detail = refused.Message
			if refused.Now != nil {
				line.Resource = refused.Now.raw
			}
		}
		r.worst = worse(r.worst, status(err))
		if !r.json {
			fmt.Fprintf(os.Stderr, "%s/%s %s: %v\n", k.word, name, line.Result, err)
		}
	}
	switch {
	case r.json:
		b, err := json.Marshal(line)
		if err == nil {
			_, err = fmt.Fprintf(r.out, "%s\n", b)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "weida: %v\n", err)
			r.worst = worse(r.worst, statusUsage)
			return false
		}
	case err == nil:
		fmt.Fprintf(r.out, "%s/%s %s\n", k.word, name, result)
		if it != nil && !it.Changed { // else the node has only just heard of it
			warn(k, it)
		}
	}
	return err == nil || status(err) != statusUnreachable
}

// follow prints what became of a resource that was answered for already.
func (r *answers) follow(k kindInfo, name, result string, it *item, err error) {
	r.told--
	r.tell(k, name, result, it, err)
}

// warn shows why a resource is not, or not yet, what its spec wants.
func warn(k kindInfo, it *item) {
	if it == nil {
		return
	}
	for _, c := range it.Status.Conditions {
		fmt.Fprintf(os.Stderr, "  %s/%s: %s (%s): %s\n", k.word, it.Metadata.Name, c.Type, c.Reason, c.Message)
	}
}

// end is the worst answer as an error that has been told.
func (r *answers) end(ctx context.Context, total int) error {
	if r.told < total {
		fmt.Fprintf(os.Stderr, "the other %d were not tried\n", total-r.told)
	}
	if r.worst == 0 && ctx.Err() != nil {
		return &exitError{statusUsage, errors.New("interrupted; what was not answered was not asked for")}
	}
	if r.worst == 0 {
		return nil
	}
	return &exitError{status: r.worst}
}

// failed says in one word how a request ended.
func failed(err error) string {
	switch status(err) {
	case statusIndeterminate:
		return "indeterminate"
	case statusUnreachable:
		return "not sent"
	case statusRefused:
		return "refused"
	}
	return "failed"
}

// codeOf is an error's code as scripts read it, "" if it has none.
func codeOf(err error) string {
	var refused *wire.Error
	if !errors.As(err, &refused) {
		return ""
	}
	return fmt.Sprintf("E%d", uint64(refused.Code))
}

// severity orders exit statuses, the worst last.
var severity = []int{0, statusUsage, statusUnreachable, statusRefused, statusBelow, statusIndeterminate}

// worse is the worse of two exit statuses.
func worse(a, b int) int {
	for _, s := range severity {
		if s == a {
			return b
		}
		if s == b {
			return a
		}
	}
	return a
}
