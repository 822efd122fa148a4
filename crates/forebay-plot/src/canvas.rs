//! The SVG text itself: escaping, elements, and how wide a text will be.

use crate::Size;
use std::fmt::Write;

pub(crate) const INK: &str = "#1f2933";
pub(crate) const MUTED: &str = "#616e7c";
pub(crate) const GRID: &str = "#e4e7eb";
const FONT: &str = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',Arial,sans-serif";

/// Where a text is held.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// SVG text under construction.
pub(crate) struct Canvas {
    out: String,
}

impl Canvas {
    pub(crate) fn new(size: Size, title: &str) -> Canvas {
        let mut out = String::with_capacity(8 * 1024);
        let (w, h) = (n(size.width), n(size.height));
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             font-family=\"{FONT}\" role=\"img\" aria-label=\"{}\">",
            escape(title)
        );
        let _ = write!(out, "<rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>");
        Canvas { out }
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn text(
        &mut self,
        x: f64,
        y: f64,
        px: f64,
        anchor: Anchor,
        colour: &str,
        bold: bool,
        s: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let _ = write!(
            self.out,
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{colour}\"{anchor}{weight}>{}</text>",
            n(x),
            n(y),
            n(px),
            escape(s)
        );
    }

    /// A text that reads upwards, centred on the point.
    pub(crate) fn upright(&mut self, x: f64, y: f64, px: f64, s: &str) {
        let _ = write!(
            self.out,
            "<text transform=\"translate({} {}) rotate(-90)\" font-size=\"{}\" fill=\"{MUTED}\" \
             text-anchor=\"middle\">{}</text>",
            n(x),
            n(y),
            n(px),
            escape(s)
        );
    }

    /// A text that ends at the point and rises to it at 35 degrees, for crowded axes.
    pub(crate) fn slanted(&mut self, x: f64, y: f64, px: f64, s: &str) {
        let _ = write!(
            self.out,
            "<text transform=\"translate({} {}) rotate(-35)\" font-size=\"{}\" fill=\"{MUTED}\" \
             text-anchor=\"end\">{}</text>",
            n(x),
            n(y),
            n(px),
            escape(s)
        );
    }

    pub(crate) fn line(&mut self, a: (f64, f64), b: (f64, f64), colour: &str, width: f64) {
        let _ = write!(
            self.out,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"{}\"/>",
            n(a.0),
            n(a.1),
            n(b.0),
            n(b.1),
            n(width)
        );
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let _ = write!(
            self.out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\" \
             stroke-linejoin=\"round\" stroke-linecap=\"round\"/>",
            path(points),
            n(width)
        );
    }

    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], colour: &str, opacity: f64, hover: &str) {
        let _ = write!(
            self.out,
            "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"{}\">{}</polygon>",
            path(points),
            n(opacity),
            tip(hover)
        );
    }

    pub(crate) fn rect(&mut self, at: (f64, f64), size: (f64, f64), radius: f64, colour: &str, hover: &str) {
        let _ = write!(
            self.out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\" fill=\"{colour}\">{}</rect>",
            n(at.0),
            n(at.1),
            n(size.0.max(0.0)),
            n(size.1.max(0.0)),
            n(radius),
            tip(hover)
        );
    }

    pub(crate) fn dot(&mut self, at: (f64, f64), r: f64, colour: &str, opacity: f64) {
        let _ = write!(
            self.out,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{colour}\" fill-opacity=\"{}\"/>",
            n(at.0),
            n(at.1),
            n(r),
            n(opacity)
        );
    }

    /// The `index`th series' mark: shape as well as colour tells series apart.
    pub(crate) fn mark(&mut self, index: usize, (x, y): (f64, f64), r: f64, hover: &str) {
        let colour = crate::colour(index);
        let style = format!("fill=\"{colour}\" stroke=\"#ffffff\" stroke-width=\"1\"");
        let tip = tip(hover);
        let _ = match index % 4 {
            0 => write!(
                self.out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {style}>{tip}</circle>",
                n(x),
                n(y),
                n(r)
            ),
            1 => write!(
                self.out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {style}>{tip}</rect>",
                n(x - r * 0.9),
                n(y - r * 0.9),
                n(r * 1.8),
                n(r * 1.8)
            ),
            2 => write!(
                self.out,
                "<polygon points=\"{}\" {style}>{tip}</polygon>",
                path(&[(x, y - r * 1.2), (x + r * 1.1, y + r * 0.8), (x - r * 1.1, y + r * 0.8)])
            ),
            _ => write!(
                self.out,
                "<polygon points=\"{}\" {style}>{tip}</polygon>",
                path(&[(x, y - r * 1.3), (x + r * 1.3, y), (x, y + r * 1.3), (x - r * 1.3, y)])
            ),
        };
    }
}

/// How wide `s` will be at `px`, near enough to lay out by.
pub(crate) fn width_of(s: &str, px: f64) -> f64 {
    s.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' | ' ' | 'f' | 't' | 'r' => 0.34,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.9,
            'A'..='Z' => 0.68,
            _ => 0.6,
        })
        .sum::<f64>()
        * px
}

/// `s` cut to at most `room` pixels, with an ellipsis where something is missing.
pub(crate) fn fit(s: &str, px: f64, room: f64) -> String {
    if width_of(s, px) <= room {
        return s.to_owned();
    }
    let mut out = String::new();
    for c in s.chars() {
        out.push(c);
        if width_of(&out, px) + 0.7 * px > room {
            out.pop();
            break;
        }
    }
    if out.is_empty() { out } else { out + "…" }
}

fn tip(s: &str) -> String {
    if s.is_empty() { String::new() } else { format!("<title>{}</title>", escape(s)) }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut s = String::with_capacity(points.len() * 12);
    for (x, y) in points {
        let _ = write!(s, "{},{} ", n(*x), n(*y));
    }
    s.pop();
    s
}

/// A coordinate with two decimals at most.
fn n(v: f64) -> String {
    let mut s = format!("{v:.2}");
    while s.ends_with('0') {
        s.pop();
    }
    if s.ends_with('.') {
        s.pop();
    }
    if s == "-0" { "0".into() } else { s }
}

fn escape(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write the other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
