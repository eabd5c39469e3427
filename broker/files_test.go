package broker

import (
	"time"

	"weida/fsync"
)

// OnFiles has a node work on another file system than the operating system's.
func OnFiles(c *Config, files fsync.FS) { c.files = files }

// Impatient has a node say after a tenth of a second that replicas are made, or absent.
func Impatient(c *Config) { c.absent = 100 * time.Millisecond }
