package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leaves are the commands that do something, without those that cobra brings.
func leaves(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	all := make(map[string]*cobra.Command)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() || cmd.Example != "" { // dev does something itself
			all[strings.TrimPrefix(cmd.CommandPath(), "weida ")] = cmd
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	return all
}

var (
	cliHeading = regexp.MustCompile(`(?m)^## (.+)$`)
	cliFlag    = regexp.MustCompile("(?m)^\\| (?:`-(\\w)`, )?`--([a-z-]+)(?: ([A-Z]+))?` \\| (?:`([^`]*)` )?\\|")
)

// sections are the parts of the page of the command line, by their headings.
func sections(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	parts := make(map[string]string)
	heads := cliHeading.FindAllStringSubmatchIndex(text, -1)
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		parts[text[h[2]:h[3]]] = text[h[1]:end]
	}
	parts[""] = text[:heads[0][0]]
	return parts
}

// notCommands are the sections that are about no command.
var notCommands = []string{"", "Exit status", "Errors", "Resources", "Files of dev"}

// TestCLIPage: the page has a section for every command with every flag as it is, and no others.
func TestCLIPage(t *testing.T) {
	parts := sections(t)
	commands := leaves(t)
	for name, cmd := range commands {
		text, ok := parts[name]
		if !ok {
			t.Errorf("the page has no section %q", name)
			continue
		}
		use := strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name()) + " " + strings.SplitN(cmd.Use, " ", 2)[0]
		if !strings.Contains(text, "`"+use) {
			t.Errorf("%s: the page does not show `%s …`", name, use)
		}
		want, got := flagsOf(cmd), flagsIn(text)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the page has the flags\n%s\nthe command has\n%s", name, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
	for name := range parts {
		if commands[name] == nil && !slices.Contains(notCommands, name) {
			t.Errorf("the page has a section %q, there is no such command", name)
		}
	}
	for _, cmd := range newRoot().Commands() {
		if !strings.Contains(parts[""], "`weida "+cmd.Name()) {
			t.Errorf("the page's list has no %s", cmd.Name())
		}
	}
}

// usageFlag finds a flag in a help text, with its shorthand and what its value is called.
var usageFlag = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)(?: ([A-Z]+))?(?: |$)`)

func flagsOf(cmd *cobra.Command) (flags []string) {
	set := cmd.LocalNonPersistentFlags()
	for _, m := range usageFlag.FindAllStringSubmatch(set.FlagUsages(), -1) {
		f := set.Lookup(m[2])
		if f == nil || f.Name == "help" {
			continue
		}
		def := f.DefValue
		if f.Value.Type() == "stringArray" || f.Name == "expected-version" { // 0 is a value of its own
			def = ""
		}
		flags = append(flags, fmt.Sprintf("-%s --%s %s %s", m[1], m[2], m[3], def))
	}
	slices.Sort(flags)
	return flags
}

func flagsIn(text string) (flags []string) {
	for _, m := range cliFlag.FindAllStringSubmatch(text, -1) {
		flags = append(flags, fmt.Sprintf("-%s --%s %s %s", m[1], m[2], m[3], m[4]))
	}
	slices.Sort(flags)
	return flags
}

// TestHelp: every command says what it does, shows an example that names it, and its examples parse.
func TestHelp(t *testing.T) {
	for name, cmd := range leaves(t) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s has no description or no example", name)
		}
		shown := false
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, "#")
			for part := range strings.SplitSeq(line, "|") {
				words := strings.Fields(strings.ReplaceAll(part, "'", ""))
				if len(words) == 0 || words[0] != "weida" {
					continue
				}
				found, rest, err := newRoot().Find(words[1:])
				if err == nil {
					err = found.ParseFlags(rest)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s: %s: %v", name, strings.TrimSpace(part), err)
				}
				shown = shown || found != nil && found.CommandPath() == cmd.CommandPath()
			}
		}
		if !shown {
			t.Errorf("%s: its examples do not show it", name)
		}
	}
}

// TestExitStatusPage: the page names the statuses that there are.
func TestExitStatusPage(t *testing.T) {
	text := sections(t)["Exit status"]
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	want := fmt.Sprint([]int{
		0, statusUsage, statusUnreachable, statusRefused, statusIndeterminate, statusBelow,
		statusUnhealthy, statusStorage, statusDisplaced,
	})
	if fmt.Sprint(got) != want {
		t.Errorf("the page has %v, there are %s", got, want)
	}
}
