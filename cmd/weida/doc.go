// Command weida is the broker and everything one does with it.
//
// Data goes to standard output, talk to standard error. Exit status: 0 done, 1 usage, 2 cannot reach the
// node, 3 refused, 4 indeterminate, 5 committed below request, 10 unhealthy, 12 storage failed; of many
// messages or resources the worst of 4, 5 and 3 counts, in this order. The commands are described in
// docs/reference/cli.md.
package main
