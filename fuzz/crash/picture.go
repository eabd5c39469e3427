package main

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// The picture's measures, in its own units.
const (
	picWidth  = 1200
	picLeft   = 70
	picRight  = 20
	picTop    = 46
	picCurve  = 170 // height of the throughput
	picStrip  = 46  // of the leader changes
	picRow    = 34  // of a node's faults
	picGap    = 26
	picBottom = 60
)

// Colors are legible on light and dark ground: the picture has a ground of its own for each.
const picStyle = `
  .bg { fill: #ffffff } .ink { fill: #24292f } .dim { fill: #6a737d } .rule { stroke: #d7dce1; stroke-width: 1 }
  .acked { fill: none; stroke: #1f6feb; stroke-width: 1.6 }
  .delivered { fill: none; stroke: #1a9850; stroke-width: 1.6 }
  .elected { stroke: #8250df; stroke-width: 1.2 } text { font: 12px sans-serif }
  .kill { fill: #d73027 } .powercut { fill: #7f0000 } .restart { fill: #8c959f } .pause { fill: #f2a900 }
  .partition { fill: #4393c3 } .diskfull { fill: #8c510a } .bitflip { fill: #c51b7d } .label { font-size: 10px }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 } .ink { fill: #e6edf3 } .dim { fill: #8d96a0 } .rule { stroke: #30363d }
    .acked { stroke: #58a6ff } .delivered { stroke: #56d364 } .elected { stroke: #bc8cff }
    .powercut { fill: #b62324 } .diskfull { fill: #bf812d }
  }
`

// picture is a run as a drawing.
type picture struct {
	b     strings.Builder
	total time.Duration
}

func (p *picture) add(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *picture) x(at time.Duration) float64 {
	at = min(max(at, 0), p.total)
	return picLeft + float64(picWidth-picLeft-picRight)*at.Seconds()/p.total.Seconds()
}

func (p *picture) text(x, y float64, class, anchor, text string) {
	p.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(text))
}

// draw writes throughput, leader changes and the faults of each node over time, as SVG.
func draw(out io.Writer, title string, total time.Duration, names []string, samples []sample, elected []change,
	bars []*bar,
) error {
	p := &picture{total: max(total, time.Second)}
	height := picTop + picCurve + picGap + picStrip + picGap + picRow*len(names) + picBottom
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s</title>`, picWidth, height,
		html.EscapeString(title))
	p.add("<style>%s</style>", picStyle)
	p.add(`<rect class="bg" width="%d" height="%d"/>`, picWidth, height)
	p.text(picLeft, 24, "ink", "start", title)
	y := float64(picTop)
	p.curves(y, samples)
	y += picCurve + picGap
	p.changes(y, elected)
	y += picStrip + picGap
	for i, name := range names {
		p.row(y, i, name, bars)
		y += picRow
	}
	p.axis(y)
	p.legend(float64(height - 12))
	p.add("</svg>")
	_, err := io.WriteString(out, p.b.String())
	return err
}

// curves draws messages a second.
func (p *picture) curves(y float64, samples []sample) {
	type point struct {
		at               time.Duration
		acked, delivered float64
	}
	var list []point
	most := 1.0
	for i := 1; i < len(samples); i++ {
		a, b := samples[i-1], samples[i]
		if b.at <= a.at {
			continue
		}
		s := (b.at - a.at).Seconds()
		q := point{b.at, float64(b.acked-a.acked) / s, float64(b.delivered-a.delivered) / s}
		list = append(list, q)
		most = max(most, q.acked, q.delivered)
	}
	for _, part := range []float64{0, 0.5, 1} {
		at := y + picCurve*(1-part)
		p.add(`<line class="rule" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, picLeft, picWidth-picRight, at, at)
		p.text(picLeft-8, at+4, "dim", "end", fmt.Sprintf("%.0f/s", most*part))
	}
	for _, c := range []string{"delivered", "acked"} {
		var b strings.Builder
		for _, q := range list {
			v := q.acked
			if c == "delivered" {
				v = q.delivered
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", p.x(q.at), y+picCurve*(1-v/most))
		}
		p.add(`<polyline class="%s" points="%s"/>`, c, strings.TrimSpace(b.String()))
	}
}

// changes draws a line for each group that got another leader.
func (p *picture) changes(y float64, elected []change) {
	p.text(picLeft-8, y+picStrip/2+4, "dim", "end", "leaders")
	p.add(`<line class="rule" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, picLeft, picWidth-picRight, y+picStrip, y+picStrip)
	at := make(map[int]int)
	for _, c := range elected {
		x := int(p.x(c.at))
		at[x]++ // several at once make a longer line
		p.add(`<line class="elected" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, x, x, y+picStrip,
			y+picStrip-min(float64(3*at[x]+3), picStrip))
	}
}

// row draws what was done to one node.
func (p *picture) row(y float64, node int, name string, bars []*bar) {
	p.text(picLeft-8, y+picRow/2+4, "ink", "end", name)
	p.add(`<line class="rule" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, picLeft, picWidth-picRight, y+picRow, y+picRow)
	for _, b := range bars {
		if !b.hits(node) {
			continue
		}
		ended := b.ended
		if ended == 0 {
			ended = p.total
		}
		top, high := y+4, float64(picRow-8)
		switch b.Kind {
		case partition: // it may lie over what is done to processes
			top, high = y+4, 7
		case diskfull:
			top, high = y+picRow-11, 7
		case bitflip:
			ended = b.began
		default: // what is done to processes
		}
		x := p.x(b.began)
		wide := max(p.x(ended)-x, 2.5)
		what := strings.TrimSpace(b.String() + " " + b.detail)
		p.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="1.5"><title>%s</title></rect>`, b.Kind, x,
			top, wide, high, html.EscapeString(what))
		if high > 10 && wide > float64(6*len(b.Kind)+6) {
			p.add(`<text x="%.1f" y="%.1f" class="label" fill="#ffffff">%s</text>`, x+3, y+picRow/2+4, b.Kind)
		}
	}
}

// hits says whether a fault is drawn at a node.
func (b *bar) hits(node int) bool {
	if b.Kind == partition && (b.Percent > 0 || b.How == "bridge") {
		return true
	}
	for _, i := range b.Nodes {
		if i == node {
			return true
		}
	}
	return false
}

// axis draws the time.
func (p *picture) axis(y float64) {
	step := time.Second
	for _, s := range []time.Duration{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 3600} {
		if step = s * time.Second; p.total/step <= 12 {
			break
		}
	}
	for at := time.Duration(0); at <= p.total; at += step {
		p.text(p.x(at), y+16, "dim", "middle", at.String())
	}
}

// legend says what is what.
func (p *picture) legend(y float64) {
	x := float64(picLeft)
	for _, c := range []string{"acked", "delivered", "elected"} {
		p.add(`<line class="%s" x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0f"/>`, c, x, x+18, y-4, y-4)
		name := map[string]string{"acked": "acknowledged", "delivered": "delivered", "elected": "new leader"}[c]
		p.text(x+24, y, "ink", "start", name)
		x += 125
	}
	for _, k := range kinds {
		p.add(`<rect class="%s" x="%.0f" y="%.0f" width="12" height="10" rx="1.5"/>`, k, x, y-9)
		p.text(x+17, y, "ink", "start", string(k))
		x += 90
	}
}
