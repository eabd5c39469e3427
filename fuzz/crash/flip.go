package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// scrubEvery is how often nodes look for damage where bits are flipped: a run is short.
const scrubEvery = 2 * time.Second

// The variants of bitflip. All but the first are of a node that was killed.
const (
	flipLive    = "live"
	flipStopped = "stopped"
	flipCut     = "cut"  // the end of a file is gone
	flipGone    = "gone" // a file is
)

// flip changes one bit of one file below a data directory, cuts its end off or moves it away, and says which and where.
// The number decides. Files of one kind are as likely as those of another. What says who the node is stays: that is an
// operator's to mend.
func flip(dir, how, away string, roll uint64) (what string, err error) {
	rng := rand.New(rand.NewPCG(roll, 0))
	byKind := make(map[string][]string)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the node runs
			return nil
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "quarantine": // nobody reads what was put aside
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		kind := d.Name()
		switch ext := filepath.Ext(kind); {
		case slices.Contains([]string{"LOCK", "disk", "node.key", "node.crt", "pid"}, kind):
			return nil
		case kind == "incarnation" && (how == flipGone || how == flipCut): // one bit of it the other copy mends
			return nil
		case ext != "":
			kind = ext
		}
		byKind[kind] = append(byKind[kind], path)
		return nil
	})
	if err != nil || len(byKind) == 0 {
		return "nothing", err
	}
	var names []string
	for kind := range byKind {
		names = append(names, kind)
	}
	slices.Sort(names)
	list := byKind[names[rng.IntN(len(names))]]
	slices.Sort(list)
	path := list[rng.IntN(len(list))]
	where := "is gone"
	switch how {
	case flipGone:
		err = os.Rename(path, fmt.Sprintf("%s-%d", away, roll))
	case flipCut:
		where, err = cutIn(path, rng)
	default:
		where, err = flipIn(path, rng)
	}
	return fmt.Sprintf("%s %s", strings.TrimPrefix(path, dir+"/"), where), err
}

func cutIn(path string, rng *rand.Rand) (where string, err error) {
	s, err := os.Stat(path)
	if err != nil || s.Size() == 0 {
		return "is empty", err
	}
	to := rng.Int64N(s.Size())
	return fmt.Sprintf("has %d bytes of %d", to, s.Size()), os.Truncate(path, to)
}

// flipIn leaves bytes behind the last that is not zero alone: nobody reads them.

func flipIn(path string, rng *rand.Rand) (where string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "is gone", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if b = bytes.TrimRight(b, "\x00"); len(b) == 0 {
		return "is empty", nil
	}
	at, bit := rng.IntN(len(b)), rng.IntN(8)
	_, err = f.WriteAt([]byte{b[at] ^ 1<<bit}, int64(at))
	return fmt.Sprintf("byte %d bit %d", at, bit), err
}
