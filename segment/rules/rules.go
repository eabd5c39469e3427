package rules

// Off names the rules of STORE.md that are not applied. The zero value applies all of them.
var Off struct {
	LookBehind      bool // step 5: search behind the first bad place for batch headers
	GreatestPromise bool // step 6: take the greatest promise instead of the one found last
	StopAtPromise   bool // step 7: bad bytes before the promise are corrupt
	CleanStop       bool // step 9: after a clean stop nothing may be torn
	SameBoot        bool // step 10: after a kill only the last batch may be torn
	PageEdge        bool // step 10: an interrupted write ends at a page edge
	NextPart        bool // step 3: the log goes on in the next segment
	Limit           bool // step 2: a recorded cut ends a segment's log
	Chain           bool // a record carries the hash of the header before it
	Salt            bool // checksums are seeded with the file's salt
	Seat            bool // checksums are seeded with group, segment and position
	Trailer         bool // a batch without its trailer is not whole
	Padding         bool // padding and reserved bits are zero
}
