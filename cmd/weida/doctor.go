package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weida/cmd/weida/doctor"
)

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor --config FILE|--data DIR",
		Short: "look at this machine before you trust it with messages",
		Long: "Measures what the disk's flush takes and whether it can be honest, and looks at the file system, limits, " +
			"clock,\n" +
			"keys, ports and peers of a node. Each finding says what to do. Where a node runs on the data directory it is\n" +
			"not disturbed, and what would do so is skipped. Nothing is changed: one probe file is written and removed.\n" +
			"Status 0 is nothing failed, 10 is something did.",
		Example: "  weida doctor --config weida-dev/n1.yaml\n" +
			"  weida doctor --data /var/lib/weida --peer 10.0.0.4:7443 -o json",
		Args: cobra.NoArgs,
	}
	f := addDoctorFlags(cmd)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		t, _, err := f.target(cmd)
		if err != nil {
			return err
		}
		r := doctor.NewReport(doctor.Gather(cmd.Context(), t, tellProgress()))
		if err := cmd.Context().Err(); err != nil {
			return errors.New("interrupted; nothing was changed, and what was found so far is not shown")
		}
		if asJSON {
			err = json.NewEncoder(os.Stdout).Encode(r)
		} else {
			_, err = os.Stdout.Write(r.Text(columns(os.Stdout)))
		}
		if err == nil && r.Worst == doctor.Fail {
			return &exitError{status: statusUnhealthy}
		}
		return err
	}
	cmd.AddCommand(newDoctorBundle())
	return cmd
}

// doctorFlags say what is looked at.
type doctorFlags struct {
	config, data *string
	peers        *[]string
}

func addDoctorFlags(cmd *cobra.Command) doctorFlags {
	return doctorFlags{
		cmd.Flags().String("config", "", "node `FILE`: the data directory, addresses and seeds are those in it"),
		cmd.Flags().String("data", "", "data `DIR`, which need not be there yet, instead of --config"),
		cmd.Flags().StringArray("peer", nil, "`ADDRESS` of another node, HOST:PORT, to reach besides; may stand more than "+
			"once"),
	}
}

// target is what is looked at, and the node file if one was named.
func (f doctorFlags) target(cmd *cobra.Command) (t doctor.Target, file *nodeFile, err error) {
	t = doctor.Target{Data: *f.data, Peers: *f.peers, Version: buildVersion()}
	switch {
	case (*f.config == "") == (*f.data == ""):
		return t, nil, fmt.Errorf("%s looks at a node file or at a directory: say --config FILE or --data DIR, one of them; "+
			"nothing was looked at", strings.TrimPrefix(cmd.CommandPath(), "weida "))
	case *f.config == "":
		return t, nil, nil
	}
	file = &nodeFile{}
	if err := readYAML(*f.config, file); err != nil {
		return t, nil, err
	}
	if _, err = file.trust(); err == nil {
		err = file.seeds()
	}
	if err != nil {
		return t, nil, fmt.Errorf("%s: %w; nothing was looked at", *f.config, err)
	}
	t.Config, t.Data, t.Name = *f.config, beside(*f.config, file.Data), file.Name
	t.Listen, t.Admin, t.MessageMax, t.Number = file.Listen, file.Admin, file.MessageMax, file.Number
	for _, s := range file.Seeds {
		t.Seeds = append(t.Seeds, doctor.Seed(s))
	}
	return t, file, nil
}

// tellProgress shows what is being done on a terminal, in one line that goes away.
func tellProgress() func(string) {
	if !terminal(os.Stderr) {
		return nil
	}
	return func(what string) { fmt.Fprint(os.Stderr, "\r\x1b[K"+what) }
}

// columns is the width of a terminal; of anything else 120.
func columns(f *os.File) int {
	const otherwise = 120
	if os.Getenv("TERM") == "dumb" {
		return otherwise
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return otherwise
	}
	return max(min(int(size.Col), otherwise), 60)
}
