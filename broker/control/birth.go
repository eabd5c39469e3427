package control

// Seed is the seed that became Members[i].
func (b Birth) Seed(i int) Seed { return b.seeds[i] }
