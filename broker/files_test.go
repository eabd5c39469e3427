package broker

import "weida/fsync"

// OnFiles has a node work on another file system than the operating system's.
func OnFiles(c *Config, files fsync.FS) { c.files = files }
