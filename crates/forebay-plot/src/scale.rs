//! Axes: from values to pixels, where the ticks are, and how numbers read.

/// How an axis maps values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Kind {
    /// Evenly.
    #[default]
    Linear,
    /// By powers of two (values must be positive).
    Log2,
    /// By powers of ten (values must be positive).
    Log10,
    /// Value `i` stands at the `i`th name.
    Categories(Vec<String>),
}

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is counted, and in what unit.
    pub label: String,
    /// How values map.
    pub kind: Kind,
    /// How a tick's value is written.
    pub format: fn(f64) -> String,
    /// Whether a linear axis starts at zero.
    pub from_zero: bool,
}

impl Default for Axis {
    fn default() -> Axis {
        Axis::linear("")
    }
}

impl Axis {
    /// A linear axis from zero.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), kind: Kind::Linear, format: number, from_zero: true }
    }

    /// An axis by powers of two.
    pub fn log2(label: impl Into<String>) -> Axis {
        Axis { kind: Kind::Log2, ..Axis::linear(label) }
    }

    /// An axis by powers of ten.
    pub fn log10(label: impl Into<String>) -> Axis {
        Axis { kind: Kind::Log10, ..Axis::linear(label) }
    }

    /// An axis of names: value 0 is the first.
    pub fn categories<S: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = S>) -> Axis {
        Axis { kind: Kind::Categories(names.into_iter().map(Into::into).collect()), ..Axis::linear(label) }
    }

    /// The same axis with ticks written by `format`.
    pub fn formatted(self, format: fn(f64) -> String) -> Axis {
        Axis { format, ..self }
    }

    /// The same axis, from the smallest value instead of zero.
    pub fn tight(self) -> Axis {
        Axis { from_zero: false, ..self }
    }

    /// Whether `v` can be shown on this axis. Beyond 1e150, differences would overflow.
    pub(crate) fn shows(&self, v: f64) -> bool {
        v.abs() <= 1e150 && (v > 1e-150 || !matches!(self.kind, Kind::Log2 | Kind::Log10))
    }

    /// The scale for these values, over about `room` pixels with a tick every `gap`.
    pub(crate) fn scale(&self, values: impl Iterator<Item = f64>, room: f64, gap: f64) -> Scale {
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| self.shows(*v)) {
            lo = lo.min(v);
            hi = hi.max(v);
        }
        let want = (room / gap).clamp(2.0, 12.0);
        match &self.kind {
            Kind::Categories(names) => {
                let count = names.len().max(1);
                let every = (count as f64 / (room / gap).max(1.0)).ceil().max(1.0) as usize;
                let ticks = names
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| i % every == 0)
                    .map(|(i, name)| (i as f64, name.clone()))
                    .collect();
                Scale { lo: -0.5, hi: count as f64 - 0.5, log: None, ticks }
            }
            Kind::Linear => {
                if lo > hi {
                    (lo, hi) = (0.0, 1.0);
                }
                if self.from_zero {
                    (lo, hi) = (lo.min(0.0), hi.max(0.0));
                }
                // A range too narrow to tick: show the value in the middle of a wider one.
                if hi - lo < f64::MIN_POSITIVE * 1e20 || hi - lo < hi.abs().max(lo.abs()) * 1e-9 {
                    (lo, hi) =
                        if hi == 0.0 { (0.0, 1.0) } else { (lo - hi.abs() * 0.1, hi + hi.abs() * 0.1) };
                    if self.from_zero {
                        lo = lo.min(0.0);
                    }
                }
                let step = nice_step((hi - lo) / want);
                if self.from_zero {
                    lo = (lo / step).floor() * step;
                    hi = (hi / step).ceil() * step;
                }
                let first = (lo / step - 1e-9).ceil();
                let ticks = (0..40)
                    .map(|i| (first + f64::from(i)) * step)
                    .take_while(|v| *v <= hi + step * 1e-9)
                    .map(|v| (v, (self.format)(if v.abs() < step * 1e-9 { 0.0 } else { v })))
                    .collect();
                Scale { lo, hi, log: None, ticks }
            }
            Kind::Log2 | Kind::Log10 => {
                if lo > hi {
                    (lo, hi) = (1.0, 2.0);
                }
                let base = if self.kind == Kind::Log2 { 2.0_f64 } else { 10.0 };
                let (mut a, mut b) = (lo.log(base).floor(), hi.log(base).ceil());
                if self.kind == Kind::Log2 {
                    (a, b) = (lo.log2() - 0.15, hi.log2() + 0.15);
                }
                if b - a < 1e-9 {
                    (a, b) = (a - 1.0, b + 1.0);
                }
                let every = ((b - a) / want).ceil().max(1.0);
                let ticks = (0..80)
                    .map(|i| (a - 1e-9).ceil() + f64::from(i) * every)
                    .take_while(|e| *e <= b + 1e-9)
                    .map(|e| (base.powf(e), (self.format)(base.powf(e))))
                    .collect();
                Scale { lo: a, hi: b, log: Some(base), ticks }
            }
        }
    }
}

/// An axis with its range settled.
pub(crate) struct Scale {
    lo: f64,
    hi: f64,
    log: Option<f64>,
    /// Where the ticks are and what they say.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// Where `v` stands between the axis' ends, 0 to 1.
    pub(crate) fn at(&self, v: f64) -> f64 {
        let v = self.log.map_or(v, |base| v.log(base));
        ((v - self.lo) / (self.hi - self.lo)).clamp(-1.0, 2.0)
    }

    /// Where bars stand: at zero, or at the low end where zero is not on the axis.
    pub(crate) fn base(&self) -> f64 {
        if self.log.is_some() { 0.0 } else { self.at(0.0).clamp(0.0, 1.0) }
    }
}

fn nice_step(raw: f64) -> f64 {
    let magnitude = 10_f64.powf(raw.log10().floor());
    let r = raw / magnitude;
    magnitude
        * if r <= 1.0 {
            1.0
        } else if r <= 2.0 {
            2.0
        } else if r <= 5.0 {
            5.0
        } else {
            10.0
        }
}

/// A number as a person reads it: `0.25`, `1,024`, `2.5M`.
pub fn number(v: f64) -> String {
    let a = v.abs();
    if a >= 1e12 || (a > 0.0 && a < 1e-4) {
        return format!("{v:.1e}");
    }
    for (limit, suffix) in [(1e9, "G"), (1e6, "M"), (1e5, "k")] {
        if a >= limit {
            let unit = if suffix == "k" { 1e3 } else { limit };
            return trim(format!("{:.2}", v / unit)) + suffix;
        }
    }
    if a >= 1000.0 {
        let whole = format!("{:.0}", a);
        let (head, tail) = whole.split_at(whole.len() - 3);
        return format!("{}{head},{tail}", if v < 0.0 { "−" } else { "" });
    }
    let digits = if a >= 100.0 {
        1
    } else if a >= 1.0 {
        2
    } else {
        4
    };
    trim(format!("{v:.digits$}")).replace('-', "−")
}

/// A byte count in binary units: `32 KiB`, `1.5 MiB`.
pub fn bytes(v: f64) -> String {
    let mut v = v;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if v.abs() < 1024.0 {
            return format!("{} {unit}", trim(format!("{v:.1}")));
        }
        v /= 1024.0;
    }
    format!("{} PiB", number(v))
}

/// A share of one as `12 %`.
pub fn percent(v: f64) -> String {
    format!("{} %", number((v * 1000.0).round() / 10.0))
}

/// A number of seconds: `250 µs`, `1.5 s`, `12:30` (minutes) or `3:05:00` (hours).
pub fn seconds(v: f64) -> String {
    let a = v.abs();
    if a == 0.0 {
        "0".into()
    } else if a < 1e-3 {
        format!("{} µs", number(v * 1e6))
    } else if a < 1.0 {
        format!("{} ms", number(v * 1e3))
    } else if !(120.0..1e9).contains(&a) {
        format!("{} s", number(v))
    } else {
        let s = a.round() as u64;
        let sign = if v < 0.0 { "−" } else { "" };
        match s / 3600 {
            0 => format!("{sign}{}:{:02}", s / 60, s % 60),
            h => format!("{sign}{h}:{:02}:{:02}", s / 60 % 60, s % 60),
        }
    }
}

fn trim(s: String) -> String {
    if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_owned() } else { s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (v, s) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (12.5, "12.5"),
            (1024.0, "1,024"),
            (2.5e6, "2.5M"),
            (250_000.0, "250k"),
        ] {
            assert_eq!(number(v), s);
        }
        assert_eq!(number(-2.0), "−2");
        assert_eq!(bytes(32768.0), "32 KiB");
        assert_eq!(percent(0.125), "12.5 %");
        assert_eq!(seconds(0.00025), "250 µs");
        assert_eq!(seconds(90.0), "90 s");
        assert_eq!(seconds(3905.0), "1:05:05");
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let s = Axis::linear("").scale([3.0, 97.0].into_iter(), 400.0, 80.0);
        let ticks: Vec<f64> = s.ticks.iter().map(|t| t.0).collect();
        assert_eq!(ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((s.at(0.0), s.at(100.0)), (0.0, 1.0));
    }

    #[test]
    fn log_axes_tick_at_powers() {
        let s = Axis::log2("").scale([32.0, 8192.0].into_iter(), 600.0, 60.0);
        assert!(s.ticks.iter().any(|t| t.0 == 32.0) && s.ticks.iter().any(|t| t.0 == 8192.0));
        let s = Axis::log10("").scale([3.0, 4000.0].into_iter(), 400.0, 60.0);
        assert_eq!(s.ticks.first().map(|t| t.0), Some(1.0));
        assert_eq!(s.ticks.last().map(|t| t.0), Some(10_000.0));
    }
}
