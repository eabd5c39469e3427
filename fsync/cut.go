package fsync

import (
	"errors"
	"fmt"
)

// Cut makes an open file end at size, which is not above its length: what lies behind is gone. It is for files that
// people see, whose end is theirs to read; a store never cuts in place. A file that cannot be cut is
// errors.ErrUnsupported, and was not changed.
func Cut(f File, size int64) error {
	c, ok := f.(interface{ Truncate(size int64) error })
	if !ok {
		return fmt.Errorf("fsync: cut at %d: %w", size, errors.ErrUnsupported)
	}
	return c.Truncate(size)
}
