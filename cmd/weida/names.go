package main

import (
	"fmt"

	"weida/broker/wire"
)

// checkNames refuses, before anything is sent, what no frame can carry. what is the kind of the id.
func checkNames(queue, what, id string) error {
	if n := len(queue); n > wire.QueueMax || n == 0 {
		return fmt.Errorf("the name of the queue has %d bytes; a name has 1 to %d; nothing was sent", n, wire.QueueMax)
	}
	if n := len(id); n > wire.IDMax {
		return fmt.Errorf("the %s id has %d bytes; an id has at most %d; nothing was sent", what, n, wire.IDMax)
	}
	return nil
}
