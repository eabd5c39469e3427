package wal

import "weida/segment"

// Holds reports whether an entry that names c could be appended as far as c is concerned: the body is here,
// or a tombstone for it. A file that a crash may have left unfinished is no body. Owner only.
func (l *Log) Holds(c segment.Commit) (bool, error) {
	if l.voids.has(c.Ref) {
		return true, nil
	}
	if c.Large {
		b := l.large[c.Ref]
		return b != nil && !b.unproved(), nil
	}
	if l.pending.has(c.Ref) {
		return true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.holderLocked(c.Ref)
	return s != nil, err
}
