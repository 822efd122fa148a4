//! Charts as self-contained SVG text, all with one look: plain data structs in, `svg()` out.
//!
//! | chart | for |
//! |---|---|
//! | [`Line`] | one or more series over a linear, logarithmic or categorical x axis, with spread |
//! | [`Bars`] | grouped or stacked bars over categories |
//! | [`HeatMap`] | a table of numbers as coloured, labelled cells |
//! | [`Gantt`] | who held what when |
//! | [`Steps`] | values that jump at points in time |
//! | [`table`] | the same for a terminal: rows and columns, and lines of text ([`say!`]) |
//!
//! Every struct has a `Default`, so a caller names only what it has:
//!
//! ```
//! use forebay_plot::{Axis, Line, Series};
//! let svg = Line {
//!     title: "Bandwidth by I/O nodes".into(),
//!     x: Axis::categories("I/O nodes", ["0", "1", "2"]),
//!     y: Axis::linear("MB/s"),
//!     series: vec![Series::new("measured", [(0.0, 510.0), (1.0, 340.0), (2.0, 620.0)])],
//!     ..Line::default()
//! }
//! .svg();
//! assert!(svg.starts_with("<svg"));
//! ```
//!
//! The text can be written to a `.svg` file or put into an HTML page as it is: it refers to nothing
//! outside itself, and marks carry hover texts. Values that are not finite are left out.

mod bars;
mod canvas;
mod frame;
mod gantt;
mod heat;
mod line;
mod scale;
mod steps;
pub mod table;

pub use bars::{BarSeries, Bars};
pub use gantt::{Gantt, Hold};
pub use heat::{HeatMap, Shades};
pub use line::{Line, Point, Series, Spread};
pub use scale::{Axis, Kind, bytes, number, percent, seconds};
pub use steps::{StepSeries, Steps};

/// Width and height of a chart in CSS pixels. Below 300 wide, a chart drops to small type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Pixels across.
    pub width: f64,
    /// Pixels down.
    pub height: f64,
}

impl Default for Size {
    fn default() -> Size {
        Size { width: 720.0, height: 420.0 }
    }
}

impl Size {
    /// One panel of a page of small multiples.
    pub const SMALL: Size = Size { width: 230.0, height: 180.0 };

    /// So many pixels.
    pub const fn new(width: f64, height: f64) -> Size {
        Size { width, height }
    }
}

/// Okabe and Ito's colours, which people with any colour vision tell apart, in the order series get
/// them.
const PALETTE: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b5b5b", "#8c7400", "#5e3c99",
    "#8b1a1a",
];

/// The colour that the charts give to the `index`th series, for legends outside a chart.
pub fn colour(index: usize) -> &'static str {
    PALETTE[index % PALETTE.len()]
}
