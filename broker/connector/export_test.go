package connector

// PathOf is where a connector's file lies.
func PathOf(c Connector) (string, error) {
	at, err := c.(*file).place()
	return at.file, err
}

// Word is the one word of a code.
var Word = word

// Pause is pause.
var Pause = pause
