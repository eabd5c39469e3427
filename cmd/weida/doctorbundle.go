package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"weida/cmd/weida/doctor"
)

func newDoctorBundle() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle --out FILE",
		Short: "gather what is needed to help, with every secret left out",
		Long: "Writes one archive with the doctor's report, the node file, the state of the cluster, metrics, names and " +
			"sizes\n" +
			"of the data directory's files, and the end of a log. No keys, no bodies, no ids of producers: only what is " +
			"known\n" +
			"to be harmless is in it. Prints what is in it and what was left out.",
		Example: "  weida doctor bundle --config weida-dev/n1.yaml --out weida.tar.gz",
		Args:    cobra.NoArgs,
	}
	f := addDoctorFlags(cmd)
	out := cmd.Flags().String("out", "", "`FILE` that is made, a .tar.gz (required)")
	logs := cmd.Flags().StringArray("log", nil, "`FILE` with what the node wrote to standard error; may stand more "+
		"than once")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := output()
		if err != nil {
			return err
		}
		if *out == "" {
			return errors.New("doctor bundle needs --out FILE; nothing was gathered")
		}
		t, file, err := f.target(cmd)
		if err != nil {
			return err
		}
		for _, path := range *logs {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%w; nothing was gathered", err)
			}
		}
		progress := tellProgress()
		b := &doctor.Bundle{
			Report: doctor.NewReport(doctor.Gather(cmd.Context(), t, progress)), Logs: *logs, Progress: progress,
		}
		if file != nil {
			b.Node = file
		}
		if t.Admin != "" {
			b.Ask = asker(newAPI("http://" + t.Admin))
		}
		c, err := writeBundle(cmd.Context(), *out, b)
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(os.Stdout).Encode(struct {
				File string `json:"file"`
				*doctor.Contents
			}{*out, c})
		}
		_, err = fmt.Printf("wrote %s\n\n%s", *out, c.Text())
		return err
	}
	return cmd
}

// asker asks an admin port for documents; what is posted there asks, too.
func asker(a *api) func(context.Context, string, string, url.Values, []byte) ([]byte, error) {
	return func(ctx context.Context, method, path string, q url.Values, body []byte) ([]byte, error) {
		if method == http.MethodPost {
			method = asking
		}
		b, _, err := a.do(ctx, method, path, q, body)
		return b, err
	}
}

// writeBundle makes the archive, which only its owner can read. One that is there is not touched, one that cannot be
// finished is removed.
func writeBundle(ctx context.Context, path string, b *doctor.Bundle) (c *doctor.Contents, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("there is a file at %s already; it was not changed, and nothing was gathered; give another "+
			"name",
			path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was gathered", err)
	}
	c, err = b.Write(ctx, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; there is no archive", err), os.Remove(path))
	}
	return c, nil
}
