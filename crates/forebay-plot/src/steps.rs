//! Values that jump at points in time and stay until the next jump.

use crate::Size;
use crate::frame::{Frame, Swatch};
use crate::scale::Axis;

/// One stepped line.
#[derive(Clone, Debug, Default)]
pub struct StepSeries {
    /// What the legend calls it.
    pub name: String,
    /// `(since when, value)`, by time.
    pub jumps: Vec<(f64, f64)>,
}

/// A step timeline.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Above the chart.
    pub title: String,
    /// Pixels.
    pub size: Size,
    /// Time.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines; a legend appears when there are several.
    pub series: Vec<StepSeries>,
    /// Where the last values end; without it, at the last jump of all.
    pub end: Option<f64>,
    /// Stack the series as filled areas instead of drawing lines.
    pub stacked: bool,
}

impl Steps {
    /// The chart as SVG text.
    pub fn svg(&self) -> String {
        let series: Vec<Vec<(f64, f64)>> = self.series.iter().map(|s| self.shown(s)).collect();
        let mut xs: Vec<f64> = series.iter().flatten().map(|p| p.0).collect();
        let any = !xs.is_empty();
        xs.extend(self.end.filter(|t| self.x.shows(*t)));
        let end = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let areas = if self.stacked { stack(&series) } else { Vec::new() };
        let ys: Vec<f64> = if self.stacked {
            areas.iter().flatten().map(|a| a.2).collect()
        } else {
            series.iter().flatten().map(|p| p.1).collect()
        };
        let names: Vec<String> = self.series.iter().map(|s| s.name.clone()).collect();
        let swatch = if self.stacked { Swatch::Block } else { Swatch::Mark };
        let mut f = Frame::new(self.size, &self.title, &names, swatch, &self.x, &self.y, (&xs, &ys));
        if !any {
            f.empty_note();
        }
        for (i, jumps) in series.iter().enumerate().filter(|_| !self.stacked) {
            let mut path = Vec::with_capacity(jumps.len() * 2 + 1);
            for &(t, v) in jumps {
                let at = (f.px(t), f.py(v));
                if let Some(&(_, y)) = path.last() {
                    path.push((at.0, y));
                }
                path.push(at);
            }
            if let Some(&(_, y)) = path.last() {
                path.push((f.px(end), y));
            }
            if path.len() > 1 {
                f.canvas.polyline(&path, crate::colour(i), if self.size.width < 300.0 { 1.5 } else { 2.0 });
            }
        }
        for (i, area) in areas.iter().enumerate() {
            let mut upper = Vec::new();
            let mut lower = Vec::new();
            for (k, &(t, lo, hi)) in area.iter().enumerate() {
                let until = area.get(k + 1).map_or(end, |n| n.0);
                upper.extend([(f.px(t), f.py(hi)), (f.px(until), f.py(hi))]);
                lower.extend([(f.px(t), f.py(lo)), (f.px(until), f.py(lo))]);
            }
            lower.reverse();
            upper.extend(lower);
            if !upper.is_empty() {
                f.canvas.polygon(&upper, crate::colour(i), 0.85, &self.series[i].name);
            }
        }
        f.canvas.finish()
    }

    fn shown(&self, s: &StepSeries) -> Vec<(f64, f64)> {
        s.jumps.iter().copied().filter(|(t, v)| self.x.shows(*t) && self.y.shows(*v)).collect()
    }
}

/// Each series as `(since when, from, to)`, standing on the ones before it.
fn stack(series: &[Vec<(f64, f64)>]) -> Vec<Vec<(f64, f64, f64)>> {
    let mut times: Vec<f64> = series.iter().flatten().map(|p| p.0).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let mut base = vec![0.0; times.len()];
    let mut out = Vec::with_capacity(series.len());
    for jumps in series {
        let mut area = Vec::with_capacity(times.len());
        let (mut next, mut value) = (0, 0.0);
        for (k, &t) in times.iter().enumerate() {
            while next < jumps.len() && jumps[next].0 <= t {
                value = jumps[next].1;
                next += 1;
            }
            area.push((t, base[k], base[k] + value));
            base[k] += value;
        }
        out.push(area);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::stack;

    #[test]
    fn stacked_series_stand_on_each_other() {
        let a = vec![(0.0, 1.0), (2.0, 3.0)];
        let b = vec![(1.0, 5.0)];
        let s = stack(&[a, b]);
        assert_eq!(s[0], [(0.0, 0.0, 1.0), (1.0, 0.0, 1.0), (2.0, 0.0, 3.0)]);
        assert_eq!(s[1], [(0.0, 1.0, 1.0), (1.0, 1.0, 6.0), (2.0, 3.0, 8.0)]);
    }
}
