package fsync

import (
	"io/fs"
	"os"
)

// Mode returns the mode of a file or directory, without following a symbolic link. Who keeps a
// secret in a file asks for it first.
func Mode(name string) (fs.FileMode, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, NewError("stat", name, err)
	}
	return info.Mode(), nil
}
