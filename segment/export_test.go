package segment

// DocTables gives the tables of STORE.md to the tests outside the package.
var DocTables = docTables
