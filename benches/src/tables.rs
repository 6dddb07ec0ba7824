//! Tables for people: the JSON files carry the exact values.

use std::fmt;

use comfy_table::{CellAlignment, presets};

/// A table with a title; all columns but the first few hold figures.
pub struct Table {
    title: String,
    names: usize,
    inner: comfy_table::Table,
}

impl Table {
    /// `header` names the columns; the first `names` of them hold words, the rest figures.
    #[must_use]
    pub fn new<H: Into<String>>(
        title: impl Into<String>,
        names: usize,
        header: impl IntoIterator<Item = H>,
    ) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::UTF8_FULL_CONDENSED);
        inner.set_header(header.into_iter().map(Into::<String>::into));
        Self {
            title: title.into(),
            names,
            inner,
        }
    }

    /// Adds a line.
    pub fn line<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.inner.add_row(cells.into_iter().map(Into::<String>::into));
    }

    /// Whether no line was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = self.inner.clone();
        for column in table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "\n{}\n{table}", self.title)
    }
}

/// A whole number with its digits in groups of three: `1,234,567`.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits
        .strip_prefix('-')
        .map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    out.push_str(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A value with about three significant digits: `0`, `0.123`, `4.57`, `89.1`, `12,345`.
#[must_use]
pub fn approximate(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => grouped(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1e3, "1,000"),
            (-1234567.0, "-1,234,567"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }
}
