package doctor

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

func node(f *Facts) Check {
	r := &f.Running
	who := "a node has it open"
	if r.PID > 0 {
		who = fmt.Sprintf("a node has it open, process %d", r.PID)
	}
	switch {
	case r.Why != "":
		return warn("run the doctor as the user of the node, or as root",
			"whether a node has the data directory open cannot be seen: %s; nothing was written", r.Why)
	case !r.Held:
		return ok("none has the data directory open, so everything may be measured")
	case len(f.Builds.Ready) > 0:
		p := f.Builds.Ready[0]
		return warn("see `weida status`; "+p.Remedy, "%s, and tells of %d problems, the first is %s: %s", who,
			len(f.Builds.Ready), p.Object, p.What)
	}
	return ok("%s; it is left alone, so nothing is written there and no port is tried", who)
}

func owner(a *Access) Check {
	switch {
	case a.Why != "":
		return skipped(a.Why)
	case !a.There:
		return skipped("there is no data directory yet; the node makes it, with mode 0700")
	case a.Foreign > 0:
		return fail(fmt.Sprintf("chown -R %d the data directory while no node runs, and start the node as that user alone",
			a.Owner), "%d files belong to another user than the directory (user %d), the first is %s: the node was started "+
			"once as somebody else", a.Foreign, a.Owner, a.Example)
	case a.NodeUser >= 0 && a.NodeUser != 0 && a.NodeUser != a.Owner:
		return fail(fmt.Sprintf("chown -R %d the data directory", a.NodeUser),
			"the node runs as user %d, the directory belongs to user %d", a.NodeUser, a.Owner)
	case a.Me != 0 && a.Me != a.Owner:
		return warn(fmt.Sprintf("start the node as user %d; run the doctor as that user too", a.Owner),
			"the directory belongs to user %d, and this is user %d", a.Owner, a.Me)
	}
	return ok("everything belongs to user %d", a.Owner)
}

func permissions(a *Access) Check {
	switch {
	case a.Why != "":
		return skipped(a.Why)
	case a.KeyMode&0o077 != 0:
		return fail("chmod 600 node.key if nobody else can have read it; else move it away, and a new one is made, which "+
			"the "+
			"other nodes and all clients have to be told of",
			"others can read the private key (mode %04o), so the node does not start with it", a.KeyMode)
	case a.FileMode&0o022 != 0:
		return fail("chmod 644 the node file", "others can write the node file (mode %04o), and so decide whom the node "+
			"trusts",
			a.FileMode)
	case !a.There:
		return skipped("there is no data directory yet; the node makes it, with mode 0700")
	case a.Mode&0o022 != 0:
		return fail("chmod 700 the data directory", "others can write to the data directory (mode %04o)", a.Mode)
	case a.Mode&0o055 != 0:
		return warn("chmod 700 the data directory", "others can read the data directory (mode %04o); its files are not "+
			"encrypted, and each has mode 0600", a.Mode)
	}
	return ok("data directory %04o, key %04o", a.Mode, a.KeyMode)
}

func store(s *Store) Check {
	switch {
	case s.Why != "":
		return skipped(s.Why)
	case s.Absent:
		return ok("none yet; the first start makes it, in format %d", s.Format)
	case s.Foreign:
		return fail("name another directory; the node touches nothing in one that is not its own", "%s", s.Bad)
	case s.Version:
		return fail("use the version of weida that wrote it; this one changes nothing in it", "%s", s.Bad)
	case s.Bad != "":
		return fail("copy the directory before anything else, then `weida log verify DIR`; delete nothing", "%s", s.Bad)
	}
	how := "stopped in order"
	if !s.Clean {
		how = "not stopped in order, or running"
	}
	found := fmt.Sprintf("format %d, %d groups, disk %s, %s", s.Format, s.Groups, s.Disk, how)
	if s.Left > 0 {
		return warn("nothing: the next start moves them aside and deletes none", "%s; %d names in it are not the "+
			"store's", found,
			s.Left)
	}
	return ok("%s", found)
}

func version(b *Builds) Check {
	mine := fmt.Sprintf("weida %s, commit %s, store format %d", b.Mine.Version, b.Mine.Commit, b.Mine.StoreFormat)
	switch {
	case b.Node == nil && b.Why != "":
		return ok("%s; the node was not asked: %s", mine, b.Why)
	case b.Node == nil:
		return ok("%s", mine)
	case b.Node.StoreFormat != b.Mine.StoreFormat:
		return fail("use the binary of the node's version to look at its files, and a newer one only after its notes were "+
			"read",
			"%s; the node that runs has store format %d", mine, b.Node.StoreFormat)
	case b.Node.Version != b.Mine.Version || b.Node.Commit != b.Mine.Commit:
		return warn("restart the node if this binary is the newer one",
			"%s; the node that runs is %s, commit %s", mine, b.Node.Version, b.Node.Commit)
	}
	return ok("%s, as the node that runs", mine)
}

func peerVersions(b *Builds) Check {
	if len(b.Peers) == 0 {
		return skipped("no other node's admin port can be asked from here, because they listen to their own machine only; " +
			"`weida version` there says it")
	}
	var names, other []string
	for _, p := range b.Peers {
		names = append(names, p.Name)
		if p.Version.Version != b.Mine.Version || p.Version.Commit != b.Mine.Commit ||
			p.Version.StoreFormat != b.Mine.StoreFormat {
			other = append(other, fmt.Sprintf("%s is %s, commit %s, format %d", p.Name, p.Version.Version, p.Version.Commit,
				p.Version.StoreFormat))
		}
	}
	if len(other) > 0 {
		return warn("bring all nodes to one version; mixed ones are for the time of a change only", "%s", commas(other))
	}
	return ok("the same on %s", commas(names))
}

// keyEnds is how long before its end a certificate is told of.
const keyEnds = 30 * 24 * time.Hour

func key(k *Key, now time.Time) Check {
	switch {
	case k.Why != "":
		return skipped(k.Why)
	case k.Absent:
		return ok("none yet; the first start makes it")
	case k.Bad != "":
		return fail("restore node.key from a copy: it is the node's identity, and a new one is another node", "%s", k.Bad)
	case k.NotAfter.IsZero():
		return ok("%s; its certificate is made again at the next start", k.Fingerprint)
	case now.After(k.NotAfter) || now.Before(k.NotBefore):
		return warn("look at the clock; else remove node.crt while the node is stopped: it is made again from the same key, "+
			"and the fingerprint stays",
			"%s; its certificate counts from %s to %s; weida trusts the key and not the dates, other programs may not",
			k.Fingerprint, k.NotBefore.Format(time.DateOnly), k.NotAfter.Format(time.DateOnly))
	case k.NotAfter.Sub(now) < keyEnds:
		return warn("remove node.crt while the node is stopped: it is made again from the same key, and the fingerprint "+
			"stays",
			"%s; its certificate ends on %s", k.Fingerprint, k.NotAfter.Format(time.DateOnly))
	}
	return ok("%s, its certificate matches and ends on %s", k.Fingerprint, k.NotAfter.Format(time.DateOnly))
}

func seeds(s *Seeds, k *Key) Check {
	switch {
	case s.Why != "":
		return skipped(s.Why)
	case len(s.List) == 0:
		return ok("none: a cluster of this node alone")
	case s.Number != 0:
		return ok("%d, and number %d: this node joins later and need not be among them", len(s.List), s.Number)
	case k.Why != "" || k.Bad != "":
		return skipped("the node's key could not be read, so whether it is among the seeds is not known")
	}
	at := slices.IndexFunc(s.List, func(v Seed) bool { return v.Fingerprint == k.Fingerprint })
	switch {
	case k.Absent:
		return warn("start it once; it makes its key, names it, and ends; then write that fingerprint into the seeds of "+
			"every "+
			"node file", "this node has no key yet, so it cannot be among the %d seeds", len(s.List))
	case at < 0:
		return fail("write the fingerprint that `key` shows into the seeds of every node file, the same list in all; if "+
			"the key "+
			"was lost, restore node.key", "this node's key is not among the %d seeds, so it does not start with "+
			"them", len(s.List))
	case s.List[at].Name != s.Name:
		return warn("give it one name in all files", "this node is called %q here and %q in the "+
			"seeds", s.Name, s.List[at].Name)
	}
	if _, mine, err := net.SplitHostPort(s.Listen); err == nil {
		if _, theirs, err := net.SplitHostPort(s.List[at].Address); err == nil && mine != theirs && mine != "0" {
			return warn("correct one of them, unless something between the nodes changes ports",
				"this node listens on port %s, and the seeds name port %s", mine, theirs)
		}
	}
	return ok("%d, this node is among them as %s", len(s.List), s.List[at].Name)
}

func port(p *Port) Check {
	switch {
	case p.Why != "":
		return skipped(p.Why)
	case p.Bad != "" && strings.Contains(p.Bad, "assign"):
		return fail("correct it in the node file: 0.0.0.0 is every address of this machine",
			"%s is no address of this machine: %s", p.Address, p.Bad)
	case p.Bad != "":
		return fail(fmt.Sprintf("see who has it (`ss -lnp 'sport = :%s'`), or choose another one in the node file",
			portOf(p.Address)), "%s cannot be listened on: %s", p.Address, p.Bad)
	}
	return ok("%s is free", p.Address)
}

func portOf(address string) string {
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return p
}

// farAway is how long a handshake may take before elections feel it.
const farAway = 300 * time.Millisecond

// peer judges one of the others. Where this node does not run either, those that do not answer may just not be started
// yet, unless somebody asked for them by name.
func peer(p *Peer, runs bool) Check {
	where := p.Address
	if len(p.Resolved) > 0 && !strings.HasPrefix(p.Address, p.Resolved[0]) {
		where += " (" + commas(p.Resolved) + ")"
	}
	took := span(p.Took)
	switch {
	case p.Why != "":
		return skipped(p.Why)
	case p.NoName != "":
		return fail("correct its address, or the name service of this machine (`getent hosts NAME`)",
			"the name in %s leads nowhere: %s", p.Address, p.NoName)
	case p.Proved != "" && p.Fingerprint != "" && p.Proved != p.Fingerprint:
		return fail("correct address or fingerprint in the seeds; if its key was lost, restore its node.key",
			"another node answers at %s: it proved %s and not %s", where, p.Proved, p.Fingerprint)
	case p.Proved != "" && p.Fingerprint == "":
		return ok("%s answers in %s as %s", where, took, p.Proved)
	case p.Away && p.NotMine:
		return ok("%s answers in %s, and proved its key; whether it lets this node in shows when this node has a key", where,
			took)
	case p.Away:
		return fail("see that the node files of both have the same seeds, or `weida node add` this key",
			"%s answers in %s, and turned this node's key away", where, took)
	case !p.Answered && !runs && p.Fingerprint != "":
		return warn("start it and look again; if it runs, let UDP through to that port in both directions (firewall, "+
			"security "+
			"group)", "%s does not answer, as a node does that is not started yet: %s", where, p.Bad)
	case !p.Answered:
		return fail("start it; if it runs, let UDP through to that port in both directions (firewall, security group)",
			"%s does not answer: %s", where, p.Bad)
	case p.Took > farAway:
		return warn("see what is slow between them; an election waits 1.5 s for a leader", "%s answers in %s", where, took)
	}
	return ok("%s answers in %s, with the right key", where, took)
}
