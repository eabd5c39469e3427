package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestProgramOnThePage: the program of the how-to is the one that is compiled here, word for word.
func TestProgramOnThePage(t *testing.T) {
	compiled, err := os.ReadFile("example_program_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/how-to/write-a-program.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go main.go\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 {
		t.Fatalf("the page has %d blocks of main.go, want one", len(blocks))
	}
	shown := strings.NewReplacer("package main\n", "package client_test\n", "func main() {", "func Example() {").
		Replace(blocks[0][1])
	if shown != string(compiled) {
		t.Error("main.go on the page is not what example_program_test.go has")
	}
}
