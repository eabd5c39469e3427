package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weida/fsync"
	"weida/raftstore"
)

// madeName is the file that lists the groups which were made in this data directory. A group on the
// list whose directory is gone is damage; without the list it would be made anew, empty, in silence. The
// registry of queues takes its place with the control group.
const madeName = "made"

const madeMax = 1 << 20

// made reads the list; absent, nothing was made yet.
func (n *Node) made() (map[raftstore.GroupID]bool, error) {
	path := filepath.Join(n.c.Dir, madeName)
	b, err := fsync.ReadFile(n.c.files, path, madeMax)
	if errors.Is(err, fs.ErrNotExist) {
		return map[raftstore.GroupID]bool{}, nil
	}
	if err != nil {
		return nil, err
	}
	list := make(map[raftstore.GroupID]bool)
	for _, word := range strings.Fields(string(b)) {
		g, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is damaged at %q: it lists the numbers of the groups made here, one a line; "+
				"nothing was changed; write it again from the names in groups", path, word)
		}
		list[raftstore.GroupID(g)] = true
	}
	return list, nil
}

// noteMade adds a group to the list, flushed.
func (n *Node) noteMade(list map[raftstore.GroupID]bool, g raftstore.GroupID) error {
	list[g] = true
	var b strings.Builder
	for _, one := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintf(&b, "%d\n", uint64(one))
	}
	return fsync.WriteFileAtomic(n.c.files, n.c.Dir, madeName, []byte(b.String()))
}
