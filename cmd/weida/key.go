package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"weida/broker/endpoint"
	"weida/fsync"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "make or show the key pair that a client comes with",
		Long: "A node lets in the keys that its node file lists, and nobody else. `key new` makes a pair, `key show`\n" +
			"shows one; both print the lines for the list.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeyNew(), newKeyShow())
	return cmd
}

func newKeyNew() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new DIR/NAME",
		Short: "make a key pair",
		Long: "Makes DIR/NAME.key, which is secret, and DIR/NAME.crt, and prints the lines that let the key in. A key\n" +
			"that is there stays as it is.",
		Example: "  weida key new keys/till\n  weida key new keys/ops --role admin",
		Args:    cobra.ExactArgs(1),
	}
	role := roleFlag(cmd)
	output := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		r, err := role()
		if err != nil {
			return err
		}
		dir, name, err := keyPlace(args[0])
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name+".key")
		switch _, err := fsync.Mode(path); {
		case err == nil:
			return fmt.Errorf("there is a key at %s already; it was not changed; `%s key show %s` shows it, or give "+
				"another name", path, self(), filepath.Join(dir, name))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("%w; no key was made", err)
		}
		id, err := endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
		if err != nil {
			return err
		}
		return showKey(id, path, r, asJSON)
	}
	return cmd
}

func newKeyShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show [DIR/NAME]",
		Short:   "show the fingerprint of a key pair",
		Long:    "Shows the key that the context file names, or the one at DIR/NAME, and changes nothing.",
		Example: "  weida key show\n  weida key show keys/till -o json",
		Args:    cobra.MaximumNArgs(1),
	}
	role := roleFlag(cmd)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		r, err := role()
		if err != nil {
			return err
		}
		dir, name, err := keyWanted(cmd, args)
		if err != nil {
			return err
		}
		id, err := existingKey(dir, name)
		if err != nil {
			return err
		}
		return showKey(id, filepath.Join(dir, name+".key"), r, asJSON)
	}
	return cmd
}

// roleFlag adds --role.
func roleFlag(cmd *cobra.Command) func() (endpoint.Role, error) {
	s := cmd.Flags().String("role", string(endpoint.RoleClient), "`ROLE` in the lines that are printed: client or admin")
	_ = cmd.RegisterFlagCompletionFunc("role", completeFlag("client", "admin")) // the flag is there
	return func() (endpoint.Role, error) {
		if r := endpoint.Role(*s); r == endpoint.RoleClient || r == endpoint.RoleAdmin {
			return r, nil
		}
		return "", fmt.Errorf("--role %q: the roles of a client are client and admin; nothing was done", *s)
	}
}

// keyPlace takes DIR/NAME apart.
func keyPlace(path string) (dir, name string, err error) {
	dir, name = filepath.Split(strings.TrimSuffix(path, ".key"))
	if name == "" || name == "." || name == ".." {
		return "", "", fmt.Errorf("%q names no key; it is DIR/NAME, as keys/till; nothing was done", path)
	}
	return filepath.Clean(dir), name, nil
}

// keyWanted is the key at DIR/NAME, or the one that the context file names.
func keyWanted(cmd *cobra.Command, args []string) (dir, name string, err error) {
	if len(args) > 0 {
		return keyPlace(args[0])
	}
	c, path, err := readContext(cmd)
	if err != nil {
		return "", "", err
	}
	return beside(path, c.Keys), c.Name, nil
}

// existingKey never makes a key.
func existingKey(dir, name string) (*endpoint.Identity, error) {
	if _, err := fsync.Mode(filepath.Join(dir, name+".key")); err != nil {
		return nil, fmt.Errorf("%w; `%s key new %s` makes one", err, self(), filepath.Join(dir, name))
	}
	return endpoint.LoadOrCreateIdentity(fsync.OS(), dir, name)
}

// showKey prints what goes into a node file; what to do with it is talk.
func showKey(id *endpoint.Identity, path string, role endpoint.Role, asJSON bool) error {
	f := id.Fingerprint().String()
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(struct {
			Fingerprint string `json:"fingerprint"`
			Role        string `json:"role"`
			Path        string `json:"path"`
		}{f, string(role), path})
	}
	fmt.Fprintf(os.Stderr, "%s has the fingerprint %s\nlines for the list `trust` of the node file, "+
		"which counts from the node's next start:\n", path, f)
	_, err := fmt.Printf("- fingerprint: %s\n  role: %s\n", f, role)
	return err
}

// ownKey adds this client's fingerprint to the answer of a node that does not know it.
func ownKey(cmd *cobra.Command, err error) error {
	var unreachable *endpoint.UnreachableError
	if !errors.As(err, &unreachable) || !unreachable.TurnedAway() {
		return err
	}
	o, unread := loadContext(cmd)
	if unread != nil {
		return err // which is what there is to say
	}
	return fmt.Errorf("%w\nthis client's fingerprint is %v; `%s key show` prints the lines for the list",
		err, o.Identity.Fingerprint(), self())
}
