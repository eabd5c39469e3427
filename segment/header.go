package segment

// EncodeHeader returns the first FirstBatch bytes of a new segment.
func EncodeHeader(f File, h Header) []byte {
	var b [segmentLen]byte
	le.PutUint64(b[:], uint64(f.Segment))
	le.PutUint64(b[8:], uint64(h.Base))
	le.PutUint64(b[16:], h.Manifest)
	rec, _ := AppendRecord(make([]byte, 0, FirstBatch), f, 0, KindSegment, 0, b[:])
	return rec
}

// ParseHeader reads the header of segment n of group g from the start of the file. The salt is
// learned from the file itself; the caller compares it with the manifest's.
func ParseHeader(b []byte, g GroupID, n Number) (Salt, Header, error) {
	if len(b) < HeaderSize {
		return 0, Header{}, ErrShort
	}
	f := File{Group: g, Segment: n, Salt: Salt(le.Uint64(b[offSalt:]))}
	r, _, err := ParseRecord(b, f, 0)
	if err != nil {
		return 0, Header{}, err
	}
	corrupt := func(cause string) (Salt, Header, error) {
		return 0, Header{}, &CorruptError{Group: g, At: Position{Segment: n}, Cause: cause}
	}
	if r.Kind != KindSegment {
		return corrupt("the first record is of kind " + r.Kind.String() + ", not a segment header")
	}
	if Number(le.Uint64(r.Body)) != n {
		return corrupt("the header names another segment number than the file")
	}
	return f.Salt, Header{Base: Index(le.Uint64(r.Body[8:])), Manifest: le.Uint64(r.Body[16:])}, nil
}
