package broker

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain has more tests run beside each other than a small machine has processors: most of their time they wait, for
// elections, for flushes, and for what a node gives up after a while. -parallel says otherwise.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
