package main

import (
	"bytes"
	"fmt"
	"strings"

	"weida/broker/admin"
)

// remark is what there is to say about groups that are not healthy for one and the same reason.
type remark struct {
	health admin.GroupHealth
	why    string
	remedy string
	groups []string
}

// remarkNames bounds the groups that one remark names.
const remarkNames = 5

// goesOn says what the health of one group, or of several, means for who uses it.
var goesOn = map[admin.GroupHealth][2]string{
	admin.Degraded:    {"goes on", "go on"},
	admin.Changing:    {"goes on", "go on"},
	admin.Unavailable: {"takes nothing", "take nothing"},
	admin.Unknown:     {"is out of sight", "are out of sight"},
}

// writeRemarks says once for all groups that it is true of what is wrong, what that means, and what to do.
func writeRemarks(b *bytes.Buffer, c *admin.ClusterStatus) {
	var list []*remark
	seen := make(map[string]*remark)
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Why == "" {
			continue
		}
		why := g.Why + awayOf(g, c)
		key := strings.Join([]string{string(g.Health), why, g.Remedy}, "\x00")
		r := seen[key]
		if r == nil {
			r = &remark{health: g.Health, why: why, remedy: g.Remedy}
			seen[key] = r
			list = append(list, r)
		}
		r.groups = append(r.groups, g.Group)
	}
	for _, r := range list {
		names, verb := strings.Join(r.groups, ", "), goesOn[r.health][0]
		if len(r.groups) > 1 {
			verb = goesOn[r.health][1]
		}
		if more := len(r.groups) - remarkNames; more > 0 {
			names = fmt.Sprintf("%s and %d more", strings.Join(r.groups[:remarkNames], ", "), more)
		}
		if verb != "" {
			verb = " " + verb
		}
		fmt.Fprintf(b, "! %s%s: %s; %s\n", names, verb, r.why, r.remedy)
	}
}

// awayOf names the voters of a group whose nodes do not answer, unless the reason names one already.
func awayOf(g *admin.GroupState, c *admin.ClusterStatus) string {
	away := make(map[uint64]string)
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Live != nil && !n.Live.Reached {
			away[n.Metadata.UID] = n.Metadata.Name
		}
	}
	var names []string
	for _, number := range g.CurrentVoters {
		name := away[number]
		if name != "" && !strings.Contains(g.Why, name+",") && !strings.Contains(g.Why, name+" ") {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return ", " + names[0] + " does not answer"
	}
	return ", " + either(names, "and") + " do not answer"
}
