package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker/wire"
)

// flagWords say what the value of a flag has to be, by its type.
var flagWords = map[string]string{
	"uint64":   "a whole number, 0 or more",
	"int":      "a whole number",
	"float64":  "a number, as 100 or 0.5",
	"duration": "a time: a number with a unit, as 30s, 5m or 1h",
	"bool":     "true or false",
}

// invalidFlag finds the flag in an error about its value.
var invalidFlag = regexp.MustCompile(`(?s)^invalid argument .* for "(?:-\w, )?--([a-z-]+)" flag: `)

// flagSlip says in words what is wrong with a flag.
func flagSlip(cmd *cobra.Command, err error) error {
	var invalid interface{ GetValue() string }
	if m := invalidFlag.FindStringSubmatch(err.Error()); m != nil && errors.As(err, &invalid) {
		f := cmd.Flags().Lookup(m[1])
		if words := flagWords[f.Value.Type()]; words != "" {
			err = fmt.Errorf("--%s is %q; it has to be %s", f.Name, invalid.GetValue(), words)
		}
	}
	return fmt.Errorf("%w; nothing was done; `%s --help` lists the flags", err, cmd.CommandPath())
}

// plainArgs has every command say in words how it is used when it is given too much or too little.
func plainArgs(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		plainArgs(sub)
	}
	judge := cmd.Args
	if judge == nil || cmd.HasSubCommands() {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := judge(cmd, args)
		if err == nil {
			return nil
		}
		given := "nothing"
		if len(args) > 0 {
			given = "`" + strings.Join(args, " ") + "`"
		}
		if cmd.Name() == "apply" && len(args) > 0 {
			return fmt.Errorf("apply reads the files that -f names, and was given %s without it; nothing was changed; "+
				"say `%s -f %s`", given, cmd.CommandPath(), strings.Join(args, " -f "))
		}
		parent := strings.TrimSuffix(cmd.CommandPath(), cmd.Name())
		return fmt.Errorf("%s was given %s; it is used as `%s%s`; nothing was done; `%s --help` says more",
			cmd.CommandPath(), given, parent, cmd.Use, cmd.CommandPath())
	}
}

// nearestCode is the name of a code that a word is most like, or "".
func nearestCode(word string) string {
	best, distance := "", 4
	for _, i := range wire.Codes {
		if d := editDistance(strings.ToLower(word), i.Name); d < distance {
			best, distance = i.Name, d
		}
	}
	return best
}
