//! Tables for a person: a line under the header, the first column to the left, figures to the right.

use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle, presets};

const STYLE: TableStyle =
    presets::NOTHING.header_separator(comfy_table::LineStyle::none().fill('─').junction('─'));

/// An empty table; columns named in `text` are not figures and go to the left too.
pub fn new<S: AsRef<str>>(header: &[S], text: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().map(AsRef::as_ref));
    for (i, name) in header.iter().enumerate().skip(1) {
        if let Some(column) = table.column_mut(i).filter(|_| !text.contains(&name.as_ref())) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Adds a line to a text: like `println!`, but into a `String`.
#[macro_export]
macro_rules! say {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($what:tt)*) => {{
        $out.push_str(&format!($($what)*));
        $out.push('\n');
    }};
}
