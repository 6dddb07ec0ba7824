//! Columns for readers. No text is cut, since a program may read it.

use std::fmt;

/// Rows of as many cells as the head has.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with this head.
    pub(crate) fn of(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_uppercase)],
        }
    }

    /// Adds a row. Control characters, which could write elsewhere on a terminal, are shown as escapes.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| on_one_line(&cell)));
    }
}

/// A text on one line, without control characters.
pub(crate) fn on_one_line(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars().fold(String::new(), |mut line, character| {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
        line
    })
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                line.push_str(&format!("{cell:width$}  "));
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}
