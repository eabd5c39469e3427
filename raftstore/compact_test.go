package raftstore

import "testing"

// One old body that stays does not keep what is settled behind it: its segment is compacted. Also in the
// second life. (T-58)
func TestOneOldBodyDoesNotKeepTheRest(t *testing.T) {
	r, m := snapRig(t)
	m.must(put("pinned", "old but alive"))
	const limit = 8 * 512 << 10
	for life := 1; ; life++ {
		churn(r, m, 200) // 12.5 MiB
		st := m.group.Status().Store
		if st.PhysicalBytes > limit {
			t.Errorf("life %d: %+v, want at most %d bytes", life, st, limit)
		}
		if m.read("pinned") != "old but alive" {
			t.Fatal("body differs")
		}
		if life == 2 {
			break
		}
		r.kill()
		m = newKV(t, "a again")
		r.open(1, m)
	}
	r.stop()
}
