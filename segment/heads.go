package segment

// HeadAt returns what the record header at the start of b says, which stands at pos of file f: the record's kind, and
// the bytes it takes. ok is false if the header does not verify. Of the body it says nothing: where that is damaged,
// the record can be passed over and the next one read.
func HeadAt(b []byte, f File, pos int64) (k Kind, size int64, ok bool) {
	h, bad := parseHead(b, f, f.seed(), pos)
	return h.kind, h.size, bad.code == sound
}
