package wal

import "weida/segment"

// Holds reports whether an entry that names c could be appended as far as c is concerned: the body is here,
// or a tombstone for it. Owner only.
func (l *Log) Holds(c segment.Commit) (bool, error) {
	if c.Large {
		return l.hasLarge(&Append{}, c.Ref), nil
	}
	if l.pending.has(c.Ref) || l.voids.has(c.Ref) {
		return true, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.holderLocked(c.Ref)
	return s != nil, err
}
