package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"weida/fsync"
)

// smallMax is how much is read of a file that the broker keeps in the data directory, in bytes; it writes far less.
const smallMax = 64 << 20

// readSmall reads such a file; nil if there is none.
func readSmall(files fsync.FS, dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	text, err := fsync.ReadFile(files, path, smallMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, fsync.ErrTooLarge):
		return nil, fmt.Errorf("%s is not what a node writes there: %w; the node did not start and nothing was changed; "+
			"restore that file from a copy, or let the node join again with an empty directory", path, err)
	case err == nil && text == nil:
		text = []byte{}
	}
	return text, err
}

// keepDamaged keeps a copy of a damaged one beside it, which the next start moves to quarantine/. The file itself stays
// until another takes its place in one step: after a crash in between it is damaged again, and not missing, which
// would mean that there never was one.
func keepDamaged(files fsync.FS, dir, name string, text []byte, log *slog.Logger, doing string) error {
	path := filepath.Join(dir, name)
	log.Error("file damaged", "file", path, "doing", doing+"; a copy of what is left of the file is kept as "+path+
		".damaged")
	return fsync.WriteFileAtomic(files, dir, name+".damaged", text)
}
