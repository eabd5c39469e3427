package process

import (
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build makes the binary in a directory, from the sources of this module, and returns its path. It is an error if the
// binary holds anything that leaves out a rule.
func Build(dir string) (string, error) {
	bin := filepath.Join(dir, "weida")
	out, err := exec.Command("go", "build", "-o", bin, "weida/cmd/weida").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weida: %w\n%s", err, out)
	}
	list, err := Switches(bin)
	if len(list) > 0 {
		err = fmt.Errorf("bug: process: what users run can leave out rules: %v", list)
	}
	return bin, err
}

// BuildSwitched makes a binary that is weida, too, but leaves out the rules that OffVariable names in its environment:
// wal.RULE and raftstore.RULE, separated by spaces. Suites show with it that they would notice. It is the test binary
// of the command, so that nothing of this is in what users run.
func BuildSwitched(dir string) (string, error) {
	bin := filepath.Join(dir, "weida") // by this name it is the command
	out, err := exec.Command("go", "test", "-c", "-o", bin, "weida/cmd/weida").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weida with rules to switch off: %w\n%s", err, out)
	}
	return bin, nil
}

// OffVariable is the variable that a binary of BuildSwitched reads.
const OffVariable = "WEIDA_SWITCH_OFF"

// Switches are the functions of a binary that leave out rules: none, in what users run.
func Switches(bin string) (list []string, err error) {
	f, err := elf.Open(bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	all, err := f.Symbols()
	for _, s := range all {
		if name := strings.ToLower(s.Name); strings.HasPrefix(s.Name, "weida/") && strings.HasSuffix(name, ".switchoff") {
			list = append(list, s.Name)
		}
	}
	return list, err
}
