//! Charts as SVG: panels side by side and one legend. They follow the reader's choice of a light or a dark
//! page, and lines differ in dashes and marks, not only in colour.

use std::fmt::Write as _;

/// Colours on white and on near-black, in order of use; most eyes can distinguish them.
const COLOURS: [(&str, &str); 8] = [
    ("#8a6d00", "#e6c84b"),
    ("#b1440e", "#f0915c"),
    ("#a3206b", "#ef86c0"),
    ("#6b46b5", "#b79cf0"),
    ("#00718f", "#5cc8e6"),
    ("#1f5fc4", "#8ab4ff"),
    ("#3a7d1c", "#8fd16b"),
    ("#c01818", "#ff6b6b"),
];

const PANEL_WIDTH: f64 = 430.0;
const PANEL_HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const GAP: f64 = 84.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 56.0;
const LEGEND_WIDTH: f64 = 190.0;
const LEGEND_LINE: f64 = 22.0;

/// A line of a diagram.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    /// Lines of one family share colour and mark.
    family: String,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

impl Series {
    /// A line through points.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), family: name.into(), dashed: false, points }
    }

    /// Number of its points.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// True if it has no points.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The same line with the colour and mark of a family.
    pub fn like(self, family: &str) -> Series {
        Series { family: family.into(), ..self }
    }

    /// The same line, dashed or not.
    pub fn dashed(self, dashed: bool) -> Series {
        Series { dashed, ..self }
    }
}

/// The axes of a diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axes {
    /// Both logarithmic, with a mark for each point: for values over sizes.
    Logarithmic,
    /// Both linear from zero, the lower one in seconds: for samples of a run.
    OverTime,
}

/// One diagram.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Heading.
    pub title: String,
    /// Scales of both axes.
    pub axes: Axes,
    /// Quantity and unit of the lower axis.
    pub x: String,
    /// Quantity and unit of the left axis.
    pub y: String,
    /// Lines.
    pub series: Vec<Series>,
    /// A horizontal line with its name.
    pub mark: Option<(f64, String)>,
    /// Vertical lines with their names.
    pub stages: Vec<(f64, String)>,
}

/// Diagrams that share a legend.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Heading.
    pub title: String,
    /// Lines of text below the heading.
    pub notes: Vec<String>,
    /// Diagrams.
    pub panels: Vec<Panel>,
}

/// Formats a number as 16, 64 k or 16 M. Powers of two are counted in 1,024s.
pub fn count(n: f64) -> String {
    let binary = n >= 1024.0 && n % 1024.0 == 0.0 && (n as u64).is_power_of_two();
    let step = if binary { 1024.0 } else { 1000.0 };
    let short = |n: f64| {
        let text = format!("{n:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    match n {
        n if n >= step * step => format!("{} M", short(n / step / step)),
        n if n >= step => format!("{} k", short(n / step)),
        n => short(n),
    }
}

/// Maps values to coordinates.
#[derive(Clone, Copy, Debug)]
struct Scale {
    axes: Axes,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let part = match self.axes {
            Axes::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
            Axes::OverTime => (value - self.low) / (self.high - self.low),
        };
        self.from + part * (self.to - self.from)
    }

    fn shows(&self, value: f64) -> bool {
        (self.low * 0.999..=self.high * 1.001).contains(&value)
    }

    /// Ticks at 1, 2, 5, 10, 20, 50 ... on a logarithmic scale; otherwise a handful of multiples of one of
    /// these.
    fn ticks(&self) -> Vec<f64> {
        match self.axes {
            Axes::Logarithmic => {
                let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
                all.filter(|&tick| self.shows(tick)).collect()
            }
            Axes::OverTime => {
                let step = step(self.high);
                (0..).map(|i| f64::from(i) * step).take_while(|&tick| self.shows(tick)).collect()
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides the axis into a handful of parts.
fn step(high: f64) -> f64 {
    let raw = high / 4.0;
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw);
    factor.unwrap_or(10.0) * power
}

/// Lowest and highest drawn value.
fn bounds(axes: Axes, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|v| *v > 0.0 && v.is_finite());
    let (low, high) = positive.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    match (axes, low <= high) {
        (Axes::Logarithmic, true) => (low, high.max(low * 1.01)),
        (Axes::Logarithmic, false) => (1.0, 10.0),
        (Axes::OverTime, true) => (0.0, high),
        (Axes::OverTime, false) => (0.0, 1.0),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// Draws the chart.
    pub fn svg(&self) -> String {
        let panels = self.panels.len().max(1) as f64;
        let legend_at = LEFT + panels * PANEL_WIDTH + (panels - 1.0) * GAP + 28.0;
        let (width, height) = (legend_at + LEGEND_WIDTH, TOP + PANEL_HEIGHT + BOTTOM);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        style(&mut out);
        let _ = writeln!(out, "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>");
        text(&mut out, "title", LEFT, 28.0, &self.title);
        for (i, note) in self.notes.iter().enumerate() {
            text(&mut out, "note", LEFT, 47.0 + 16.0 * i as f64, note);
        }
        let families = self.families();
        for (i, panel) in self.panels.iter().enumerate() {
            panel.draw(&mut out, LEFT + i as f64 * (PANEL_WIDTH + GAP), &families);
        }
        self.legend(&mut out, legend_at, &families);
        out.push_str("</svg>\n");
        out
    }

    fn families(&self) -> Vec<&str> {
        let mut families: Vec<&str> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !families.contains(&series.family.as_str()) {
                families.push(&series.family);
            }
        }
        families
    }

    fn legend(&self, out: &mut String, x: f64, families: &[&str]) {
        let mut named: Vec<&str> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if named.contains(&series.name.as_str()) {
                continue;
            }
            let y = TOP + 8.0 + LEGEND_LINE * named.len() as f64;
            named.push(&series.name);
            let (class, dashed) = (class_of(series, families), dashes(series));
            let _ = writeln!(out, "<path class=\"line {class}{dashed}\" d=\"M{x:.1} {y:.1}h34\"/>");
            mark(out, series, families, x + 17.0, y);
            text(out, "name", x + 42.0, y + 4.0, &series.name);
        }
    }
}

impl Panel {
    fn draw(&self, out: &mut String, left: f64, families: &[&str]) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let axes = self.axes;
        let (low, high) = bounds(axes, points().map(|p| p.0));
        let x = Scale { axes, low, high, from: left + 12.0, to: left + PANEL_WIDTH - 12.0 };
        let marked = self.mark.iter().map(|mark| mark.0);
        let (low, high) = bounds(axes, points().map(|p| p.1).chain(marked));
        let y = Scale { axes, low: low / 1.15, high: high * 1.15, from: TOP + PANEL_HEIGHT, to: TOP };
        self.frame(out, left, &x, &y);
        if let Some((height, what)) = &self.mark {
            let at = y.at(*height);
            let _ = writeln!(out, "<path class=\"mark\" d=\"M{left:.1} {at:.1}h{PANEL_WIDTH}\"/>");
            text(out, "tick", left + 8.0, at - 5.0, what);
        }
        for (begin, what) in &self.stages {
            let at = x.at(*begin);
            let _ = writeln!(out, "<path class=\"mark\" d=\"M{at:.1} {TOP}v{PANEL_HEIGHT}\"/>");
            text(out, "tick", at + 3.0, TOP + 12.0, what);
        }
        for series in &self.series {
            series.draw(out, &x, &y, families);
        }
    }

    /// Title, axes, grid and ticks.
    fn frame(&self, out: &mut String, left: f64, x: &Scale, y: &Scale) {
        let bottom = TOP + PANEL_HEIGHT;
        for tick in y.ticks() {
            let at = y.at(tick);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{left:.1} {at:.1}h{PANEL_WIDTH}\"/>");
            text(out, "tick end", left - 7.0, at + 4.0, &count(tick));
        }
        // A tick for each measured size, and a number where it fits.
        let mut ticks: Vec<f64> = match self.axes {
            Axes::Logarithmic => self.series.iter().flat_map(|s| &s.points).map(|p| p.0).collect(),
            Axes::OverTime => x.ticks(),
        };
        ticks.retain(|&tick| tick > 0.0 || self.axes == Axes::OverTime);
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let mut last_named = f64::NEG_INFINITY;
        for tick in ticks {
            let at = x.at(tick);
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}v{PANEL_HEIGHT}\"/>");
            if at - last_named >= 34.0 {
                last_named = at;
                text(out, "tick middle", at, bottom + 17.0, &count(tick));
            }
        }
        let _ = writeln!(
            out,
            "<rect class=\"frame\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{PANEL_WIDTH}\" height=\"{PANEL_HEIGHT}\"/>"
        );
        text(out, "panel", left, TOP - 10.0, &self.title);
        text(out, "axis middle", left + PANEL_WIDTH / 2.0, bottom + 38.0, &self.x);
        let (at, middle) = (left - 46.0, TOP + PANEL_HEIGHT / 2.0);
        let _ = writeln!(
            out,
            "<text class=\"axis middle\" transform=\"translate({at:.1} {middle:.1}) rotate(-90)\">{}</text>",
            escape(&self.y)
        );
    }
}

impl Series {
    fn draw(&self, out: &mut String, x: &Scale, y: &Scale, families: &[&str]) {
        let is_log = x.axes == Axes::Logarithmic;
        let drawable = self.points.iter().filter(|(px, py)| match is_log {
            true => *px > 0.0 && *py > 0.0,
            false => px.is_finite() && py.is_finite(),
        });
        let places: Vec<(f64, f64)> = drawable.map(|&(px, py)| (x.at(px), y.at(py))).collect();
        let steps = places.iter().enumerate();
        let path: String =
            steps.map(|(i, (px, py))| format!("{}{px:.1} {py:.1}", if i == 0 { 'M' } else { 'L' })).collect();
        let (class, dashed) = (class_of(self, families), dashes(self));
        let _ = writeln!(out, "<path class=\"line {class}{dashed}\" d=\"{path}\"/>");
        if is_log {
            places.iter().for_each(|&(px, py)| mark(out, self, families, px, py));
        }
    }
}

fn number_of(series: &Series, families: &[&str]) -> usize {
    families.iter().position(|family| *family == series.family).unwrap_or_default()
}

fn class_of(series: &Series, families: &[&str]) -> String {
    format!("c{}", number_of(series, families) % COLOURS.len())
}

fn dashes(series: &Series) -> &'static str {
    if series.dashed { " dashed" } else { "" }
}

/// Draws a mark, whose shape depends on the family.
fn mark(out: &mut String, series: &Series, families: &[&str], x: f64, y: f64) {
    let shapes = [
        "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        "m-3.2 -3.2h6.4v6.4h-6.4z",
        "m0 -4.4l4.2 7.4h-8.4z",
        "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
        "m0 4.4l4.2 -7.4h-8.4z",
        "m-1.4 -4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z",
        "m-4.4 -2h8.8v4h-8.8z",
        "m0 -5l1.5 3.2l3.5 .4l-2.6 2.4l.7 3.5l-3.1 -1.8l-3.1 1.8l.7 -3.5l-2.6 -2.4l3.5 -.4z",
    ];
    let shape = shapes[number_of(series, families) % shapes.len()];
    let class = class_of(series, families);
    let _ = writeln!(out, "<path class=\"dot {class}\" d=\"M{x:.1} {y:.1}{shape}\"/>");
}

fn text(out: &mut String, class: &str, x: f64, y: f64, what: &str) {
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(what));
}

fn style(out: &mut String) {
    out.push_str(
        "<style>\n\
         text { font: 12px system-ui, sans-serif; fill: #3a4048 }\n\
         .title { font-size: 18px; font-weight: 600; fill: #14181d }\n\
         .panel { font-size: 14px; font-weight: 600; fill: #14181d }\n\
         .tick { font-size: 11px } .end { text-anchor: end } .middle { text-anchor: middle }\n\
         .page { fill: #ffffff } .frame { fill: none; stroke: #7b848f } .grid { stroke: #e3e6ea }\n\
         .mark { stroke: #14181d; stroke-dasharray: 2 4; fill: none }\n\
         .line { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 6 4 }\n\
         .dot { stroke: #ffffff; stroke-width: .8 }\n",
    );
    let colours = |out: &mut String, of: fn(&(&'static str, &'static str)) -> &'static str| {
        for (i, pair) in COLOURS.iter().enumerate() {
            let colour = of(pair);
            let _ = writeln!(out, ".line.c{i} {{ stroke: {colour} }} .dot.c{i} {{ fill: {colour} }}");
        }
    };
    colours(out, |pair| pair.0);
    out.push_str(
        "@media (prefers-color-scheme: dark) {\n\
         text { fill: #b9c1ca } .title, .panel { fill: #f0f3f6 }\n\
         .page { fill: #14181d } .grid { stroke: #2a3038 } .mark { stroke: #f0f3f6 } .dot { stroke: #14181d }\n",
    );
    colours(out, |pair| pair.1);
    out.push_str("}\n</style>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let short = [(16.0, "16"), (1000.0, "1 k"), (65_536.0, "64 k"), (2_097_152.0, "2 M"), (0.5, "0.5")];
        short.into_iter().for_each(|(n, text)| assert_eq!(count(n), text));
        assert_eq!(count(65_536_000.0), "65.5 M");
    }

    #[test]
    fn ticks_lie_on_their_scale() {
        let scale = Scale { axes: Axes::Logarithmic, low: 1.0, high: 1000.0, from: 0.0, to: 300.0 };
        assert!((scale.at(10.0) - 100.0).abs() < 1e-9 && (scale.at(1000.0) - 300.0).abs() < 1e-9);
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        let scale = Scale { axes: Axes::OverTime, low: 0.0, high: 30.0, from: 0.0, to: 300.0 };
        assert!((scale.at(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(scale.ticks(), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!([1.0, 7.0, 30.0, 410.0].map(step), [0.5, 2.0, 10.0, 200.0]);
    }

    #[test]
    fn charts_of_no_points_one_point_zeroes_and_nan_have_finite_coordinates() {
        let all = [vec![], vec![(5.0, 5.0)], vec![(0.0, 3.0), (4.0, 0.0)], vec![(1.0, f64::NAN), (2.0, 3.0)]];
        for (points, axes) in all.iter().flat_map(|p| [(p, Axes::Logarithmic), (p, Axes::OverTime)]) {
            let panel = Panel {
                title: "t".into(),
                axes,
                x: "x".into(),
                y: "y".into(),
                series: vec![Series::new("s", points.clone())],
                mark: None,
                stages: vec![(0.5, "a stage".into())],
            };
            let svg = Chart { title: "c".into(), notes: vec![], panels: vec![panel] }.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}, {axes:?}: {svg}");
        }
    }
}
