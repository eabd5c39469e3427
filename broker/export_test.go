package broker

import "weida/fsync"

// SetFiles has a node of a test use other files than the operating system's.
func (c *Config) SetFiles(files fsync.FS) { c.files = files }
