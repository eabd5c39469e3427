package segment

import (
	"errors"
	"math"
)

const (
	dataHead   = 4  // count of commit records
	commitSize = 44 // ref, length, digest, flags

	commitLarge = 1 << 0 // flag: the body lies in a file of its own
)

var (
	errDataShort = errors.New("segment: entry data ends inside its commit table")
	errDataFlags = errors.New("segment: commit record has unknown flags")
	errDataLen   = errors.New("segment: commit record has a length outside int64")
)

// AppendData appends the data of a normal entry: the commit records, then the commands, which are
// opaque here.
func AppendData(dst []byte, commits []Commit, commands []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(commits)))
	for _, c := range commits {
		if c.Length < 0 {
			panic("bug: segment: commit record with a negative length")
		}
		dst = le.AppendUint64(dst, uint64(c.Ref.Term))
		dst = le.AppendUint64(dst, c.Ref.Seq)
		dst = le.AppendUint64(dst, uint64(c.Length))
		dst = append(dst, c.Digest[:]...)
		var flags uint32
		if c.Large {
			flags |= commitLarge
		}
		dst = le.AppendUint32(dst, flags)
	}
	return append(dst, commands...)
}

// DataLen returns the length AppendData adds for n commit records and commands of m bytes.
func DataLen(n, m int) int { return dataHead + n*commitSize + m }

// ParseData splits the data of a normal entry; empty data has neither commits nor commands. The
// commands alias data. What it allocates is bounded by the length of data.
func ParseData(data []byte) (commits []Commit, commands []byte, err error) {
	table, commands, err := splitData(data)
	if err != nil || len(table) == 0 {
		return nil, commands, err
	}
	commits = make([]Commit, 0, len(table)/commitSize)
	for ; len(table) > 0; table = table[commitSize:] {
		c, err := getCommit(table)
		if err != nil {
			return nil, nil, err
		}
		commits = append(commits, c)
	}
	return commits, commands, nil
}

// EachCommit calls fn for every commit record in the data of a normal entry, without allocating.
// An error of fn ends it and is returned as it is.
func EachCommit(data []byte, fn func(Commit) error) error {
	table, _, err := splitData(data)
	if err != nil {
		return err
	}
	for ; len(table) > 0; table = table[commitSize:] {
		c, err := getCommit(table)
		if err != nil {
			return err
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

// Commands returns the part of a normal entry's data behind its commit table.
func Commands(data []byte) ([]byte, error) {
	_, commands, err := splitData(data)
	return commands, err
}

func splitData(data []byte) (table, commands []byte, err error) {
	if len(data) == 0 {
		return nil, nil, nil
	}
	if len(data) < dataHead {
		return nil, nil, errDataShort
	}
	n, rest := uint64(le.Uint32(data)), data[dataHead:]
	if n*commitSize > uint64(len(rest)) {
		return nil, nil, errDataShort
	}
	return rest[:n*commitSize], rest[n*commitSize:], nil
}

func getCommit(b []byte) (Commit, error) {
	length, flags := le.Uint64(b[16:]), le.Uint32(b[40:])
	if length > math.MaxInt64 {
		return Commit{}, errDataLen
	}
	if flags&^commitLarge != 0 {
		return Commit{}, errDataFlags
	}
	return Commit{
		Ref:    getRef(b),
		Length: int64(length),
		Digest: Digest(b[24:40]),
		Large:  flags&commitLarge != 0,
	}, nil
}
