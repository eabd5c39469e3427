package fsync

import (
	"errors"
	"testing"
)

func TestCheckRelease(t *testing.T) {
	for release, ok := range map[string]bool{
		"5.8.0": true, "5.10.0-28-amd64": true, "6.18.44": true, "10.0": true,
		"5.7.19": false, "4.19.0-26": false, "3.10.0": false, "": false, "unknown": false,
	} {
		err := checkRelease(release)
		if (err == nil) != ok {
			t.Errorf("%q: %v", release, err)
		}
		if _, is := errors.AsType[*KernelError](err); !ok && !is {
			t.Errorf("%q: %v is no KernelError", release, err)
		}
	}
}
