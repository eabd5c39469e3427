package doctor

import (
	"context"
	"time"
)

// Gather looks at everything. progress, if not nil, is told what is being done now; one goroutine calls it. An end of
// ctx shortens what is left: facts that are not there then say so.
func Gather(ctx context.Context, t Target, progress func(string)) *Facts {
	if progress == nil {
		progress = func(string) {}
	}
	watch := watchClock()
	f := &Facts{Data: t.Data, Config: t.Config, Node: t.Name, At: time.Now()}
	f.Running = lookRunning(t.Data)
	// Whoever cannot see that no node runs takes it that one does.
	busy := ""
	if f.Running.Why != "" {
		busy = "whether a node runs on it cannot be seen; run the doctor as its user, or stop it, to have this looked at"
	} else if f.Running.Held {
		busy = "a node runs on it and is not disturbed; stop it to have this looked at"
	}
	f.Kernel = lookKernel()
	f.Mount = lookMount(t.Data)
	f.Devices = lookDevices("/sys", &f.Mount)
	f.Space = lookSpace(&f.Mount, &t)
	probeDisk(ctx, f, busy, progress)
	f.Files = lookFiles(f.Running.PID)
	f.Memory = lookMemory(f.Running.PID)
	f.UDP = lookUDP()
	f.Access = lookAccess(t.Data, t.Config, f.Running.PID)
	f.Store = lookStore(t.Data)
	f.Space.GroupsThere = f.Store.Groups
	f.Key = lookKey(t.Data)
	f.Seeds = Seeds{List: t.Seeds, Number: t.Number, Name: t.Name, Listen: t.Listen}
	if t.Config == "" {
		f.Seeds.Why = "no node file was named; --config does"
	}
	f.Ports = lookPorts(&t, busy)
	progress("asking nodes")
	f.Builds = lookBuilds(ctx, &t, f.Running.Held)
	f.Peers = lookPeers(ctx, &t, &f.Key)
	f.Clock = lookClock(watch)
	progress("")
	return f
}
