//! Lines over time, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 34.0;

/// A line: its name, and points of time (s) and value.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines that share an axis.
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) lines: Vec<Line>,
    /// Begins of stages, s.
    pub(super) stages: Vec<(f64, &'static str)>,
}

/// A number with the prefix that makes it short.
fn short(n: f64) -> String {
    let (scaled, unit) = match n {
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e3 => (n / 1e3, " k"),
        n => (n, ""),
    };
    let text = if scaled >= 100.0 { format!("{scaled:.0}") } else { format!("{scaled:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// A step of 1, 2 or 5 times a power of ten that divides the axis into a handful of parts.
fn step(high: f64) -> f64 {
    let raw = high / 4.0;
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw);
    factor.unwrap_or(10.0) * power
}

impl Plot {
    /// Nothing where there is nothing to draw.
    pub(super) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let finite = |v: &f64| v.is_finite();
        let end = points().map(|point| point.0).filter(finite).fold(0.0, f64::max);
        let high = points().map(|point| point.1).filter(finite).fold(0.0, f64::max);
        if points().count() < 2 || end <= 0.0 {
            return String::new();
        }
        let high = if high > 0.0 { high } else { 1.0 };
        let y_step = step(high);
        let top = (high / y_step).ceil() * y_step;
        let x = |t: f64| LEFT + t / end * (WIDTH - LEFT - RIGHT);
        let y = |v: f64| TOP + (1.0 - v / top) * (HEIGHT - TOP - BOTTOM);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            self.title
        );
        let text = |out: &mut String, class: &str, x: f64, y: f64, what: &str| {
            let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{what}</text>");
        };
        text(&mut out, "title", LEFT, 16.0, self.title);
        let mut value = 0.0;
        while value <= top * 1.001 {
            let _ =
                writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {:.1}H{:.1}\"/>", y(value), WIDTH - RIGHT);
            text(&mut out, "tick end", LEFT - 6.0, y(value) + 4.0, &short(value));
            value += y_step;
        }
        let x_step = step(end);
        let mut time = 0.0;
        while time <= end * 1.001 {
            text(&mut out, "tick middle", x(time), HEIGHT - 16.0, &format!("{} s", short(time)));
            time += x_step;
        }
        for (begin, name) in &self.stages {
            let _ =
                writeln!(out, "<path class=\"stage\" d=\"M{:.1} {TOP}V{:.1}\"/>", x(*begin), HEIGHT - BOTTOM);
            text(&mut out, "tick", x(*begin) + 3.0, TOP + 10.0, name);
        }
        for (number, line) in self.lines.iter().enumerate() {
            let drawable = line.points.iter().filter(|(t, v)| t.is_finite() && v.is_finite()).enumerate();
            let path: String = drawable
                .map(|(i, (t, v))| format!("{}{:.1} {:.1}", if i == 0 { 'M' } else { 'L' }, x(*t), y(*v)))
                .collect();
            let _ = writeln!(out, "<path class=\"line l{number}\" d=\"{path}\"/>");
            let row = TOP + 8.0 + 20.0 * number as f64;
            let legend = WIDTH - RIGHT + 14.0;
            let _ = writeln!(out, "<path class=\"line l{number}\" d=\"M{legend} {row:.1}h24\"/>");
            text(&mut out, "name", legend + 30.0, row + 4.0, line.name);
        }
        out.push_str("</svg>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps_and_numbers_are_short() {
        assert_eq!([1.0, 7.0, 30.0, 410.0].map(step), [0.5, 2.0, 10.0, 200.0]);
        assert_eq!([0.0, 0.5, 1500.0, 2e6, 1.25e5].map(short), ["0", "0.5", "1.5 k", "2 M", "125 k"]);
    }

    #[test]
    fn nothing_and_zeros_are_drawn_without_nonsense() {
        let plot =
            |points| Plot { title: "t", lines: vec![Line { name: "n", points }], stages: vec![] }.svg();
        assert_eq!(plot(vec![]), "");
        assert_eq!(plot(vec![(1.0, 2.0)]), "");
        for svg in [plot(vec![(1.0, 0.0), (2.0, 0.0)]), plot(vec![(1.0, f64::NAN), (2.0, 3.0)])] {
            assert!(svg.contains("</svg>") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
